mod behaviour;
mod common;
mod explorer;
mod golden;
mod hostile;
mod reuse;
mod sizes;
