mod behaviour;
mod common;
mod explorer;
mod golden;
mod grow;
mod hostile;
mod reuse;
mod sizes;
