//! Who may do what over HTTP: daemons as processes, requests byte by byte.

mod browsers;
mod clients;
mod logins;
mod proxies;
mod redis_users;
mod rig;
mod views;
