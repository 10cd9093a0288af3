mod behaviour;
mod common;
mod explorer;
mod hostile;
mod sizes;
