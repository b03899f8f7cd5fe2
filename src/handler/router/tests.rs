//! Tests of routing.

use super::*;

fn router(toml: &str) -> Router {
    let mut handlers = Handlers::new();
    handlers.on(("Order", "close"), || async { Ok(()) });
    Router::new(handlers, &Config::from_toml(toml).unwrap())
}

fn name(router: &Router, key: &str) -> Option<String> {
    router
        .find(&TaskKey::parse(key).unwrap())
        .map(|route| route.name.to_string())
}

#[test]
fn a_registered_handler_comes_first_and_then_the_first_route_that_fits() {
    let router =
        router("[[routes]]\nmatch = '^Order@'\nlog = {}\n[[routes]]\nmatch = '@open'\nlog = {}\n");
    assert_eq!(
        name(&router, "Order@close@1").as_deref(),
        Some("Order@close")
    );
    assert_eq!(name(&router, "Order@open@1").as_deref(), Some("^Order@"));
    assert_eq!(name(&router, "Shop@open").as_deref(), Some("@open"));
    assert_eq!(name(&router, "Shop@close"), None);
}

#[test]
fn a_route_whose_expression_reads_like_a_handler_has_another_name() {
    let router = router(
        "[[routes]]\nmatch = 'Order@close'\nlog = {}\n[[routes]]\nmatch = '@open'\nlog = {}\n",
    );
    let names = ["Order@close@1", "Order@close_all@1", "Order@open"];
    let names = names.map(|key| name(&router, key).unwrap());
    assert_eq!(names, ["Order@close", "/Order@close/", "@open"]);
}

#[test]
fn a_route_adopts_as_it_says_and_else_as_all_do() {
    let routes = "[[routes]]\nmatch = '^Yes@'\nlog = {}\nadopt = true\n[[routes]]\nmatch = '^No@'\nlog = {}\nadopt = false\n[[routes]]\nmatch = '^Any@'\nlog = {}\n";
    for enabled in [true, false] {
        let router = router(&format!("adopt.enabled = {enabled}\n{routes}"));
        let adopts = |key: &str| router.adopts(&TaskKey::parse(key).unwrap());
        let rules = [
            ("Yes@m", true),
            ("No@m", false),
            ("Any@m", enabled),
            ("Order@close", enabled),
            ("Nobody@m", false),
        ];
        for (key, wanted) in rules {
            assert_eq!(adopts(key), wanted, "{key} where all say {enabled}");
        }
        assert!(router.adopts_any());
        assert!(router.runs(&TaskKey::parse("No@m").unwrap()));
        assert!(!router.runs(&TaskKey::parse("Nobody@m").unwrap()));
    }
}

#[test]
fn a_route_that_asks_for_signatures_adopts_nothing() {
    let router = router(
        "[[routes]]\nmatch = '^Signed@'\nlog = {}\npayload_secret = 'sixteen bytes or'\n[[routes]]\nmatch = '.'\nlog = {}",
    );
    let adopts = |key: &str| router.adopts(&TaskKey::parse(key).unwrap());
    assert!(!adopts("Signed@m") && adopts("Any@m"));
}

#[test]
fn nothing_stands_around_what_nothing_was_registered_for() {
    let bare = router("[[routes]]\nmatch = '^Shop@'\nlog = {}");
    let layers = |router: &Router, key: &str| {
        let key = TaskKey::parse(key).unwrap();
        router.around(&key, &router.find(&key).unwrap())
    };
    assert!(layers(&bare, "Order@close").is_empty() && layers(&bare, "Shop@open").is_empty());
    let slow = router("[[routes]]\nmatch = '^Shop@'\nlog = {}\nslow_after = '1s'");
    assert!(layers(&slow, "Order@close").is_empty() && !layers(&slow, "Shop@open").is_empty());
}

#[test]
fn a_handlers_own_options_stand_over_the_configuration() {
    let mut handlers = Handlers::new();
    handlers.on(("Order", "open"), || async { Ok(()) });
    handlers
        .on(("Order", "close"), || async { Ok(()) })
        .retry(RetryPolicy::never())
        .timeout(Duration::from_secs(7))
        .expire_after(Duration::from_secs(8));
    let router = Router::new(handlers, &Config::default());
    let of = |key: &str| router.find(&TaskKey::parse(key).unwrap()).unwrap();
    let (own, other) = (of("Order@close@1"), of("Order@open@1"));
    assert_eq!(*own.retry, RetryPolicy::never());
    assert_eq!(own.timeout, Duration::from_secs(7));
    assert_eq!(own.expire_after, Some(Duration::from_secs(8)));
    assert_eq!(*other.retry, Config::default().retry);
    assert_eq!(other.timeout, Config::default().engine.timeout);
    assert_eq!(other.expire_after, None);
}

#[test]
fn routes_can_be_exchanged() {
    let router = router("");
    assert_eq!(name(&router, "Shop@open"), None);
    router.reload(
        &Config::from_toml("[[routes]]\nmatch = 'Shop'\nlog = {}\ntimeout = '3s'").unwrap(),
    );
    assert_eq!(
        router
            .find(&TaskKey::parse("Shop@open").unwrap())
            .unwrap()
            .timeout,
        Duration::from_secs(3)
    );
}
