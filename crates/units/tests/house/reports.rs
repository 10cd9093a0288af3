//! Nothing that reports may fail or wait: a mount would, too.

use super::sources::{crates, root, sources};

/// They panic where nobody reads any more, and wait where nobody reads yet.
const FORBIDDEN: [&str; 5] = ["println!", "eprintln!", "print!", "eprint!", "dbg!"];

/// The macro that the line uses, if it does. Longer names end like these.
fn used_in(line: &str) -> Option<&'static str> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let uses = |name: &&str| {
        line.match_indices(*name).any(|(at, _)| !line.as_bytes()[..at].last().is_some_and(is_name))
    };
    FORBIDDEN.into_iter().filter(|_| !line.trim_start().starts_with("//")).find(|name| uses(name))
}

/// Programs and daemons are one binary, and what one calls another may call tomorrow: so the rule
/// is everybody's. `text/output` prints, `daemon/reporter` complains, and `runtime/standard_error`
/// tells without waiting. Tests may print.
#[test]
fn what_reports_neither_fails_nor_waits() {
    assert_eq!(used_in(r#"    eprintln!("okeanos: {error}");"#), Some("eprintln!"));
    assert_eq!(used_in("reporter.tell(text); // println! waits"), Some("println!"));
    assert_eq!((used_in("my_print!(1)"), used_in("    /// as `eprintln!` does")), (None, None));
    let mut found = Vec::new();
    for name in crates() {
        for (path, text) in sources(root().join("crates").join(name).join("src")) {
            let code = text.split("[cfg(test)]").next().unwrap_or_default();
            let used = code.lines().filter_map(|line| Some((used_in(line)?, line.trim())));
            found.extend(used.map(|(_, line)| format!("{}: {line}", path.display())));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
