//! `/healthz`, `/livez`, `/readyz`: reports of health checks.

use machinery::go_text::quote;
use machinery::query::Query;

/// A check: its name, and its failure.
pub type Check = (String, Result<(), String>);

/// A response in plain text.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub code: u16,
    pub text: String,
}

/// Reports all checks of an endpoint (`healthz`, …); lists each with `verbose` or when one fails, with the reason of a failure
/// only if `reasons`.
#[must_use]
pub fn report(endpoint: &str, checks: &[Check], query: &Query, reasons: bool) -> Report {
    let mut excluded: Vec<&str> = query.all("exclude").filter(|name| !name.is_empty()).collect();
    excluded.sort_unstable();
    excluded.dedup();
    let mut lines = String::new();
    let mut failed = false;
    for (name, result) in checks {
        if let Some(at) = excluded.iter().position(|wanted| wanted == name) {
            excluded.remove(at);
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        match result {
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(why) => {
                failed = true;
                tracing::warn!(endpoint, check = name, why, "health check failed");
                let shown = if reasons { why } else { "reason withheld" };
                lines.push_str(&format!("[-]{name} failed: {shown}\n"));
            }
        }
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| quote(name)).collect();
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {}\n", names.join(", ")));
    }
    if failed {
        return Report { code: 500, text: format!("{lines}{endpoint} check failed\n") };
    }
    let text =
        if query.get("verbose").is_some() { format!("{lines}{endpoint} check passed\n") } else { "ok".to_owned() };
    Report { code: 200, text }
}

/// Adds sentences that are no failures, such as the names of damaged objects, before the last line of a verbose report.
#[must_use]
pub fn with_warnings(mut report: Report, warnings: &[String]) -> Report {
    let Some(end) = report.text.trim_end().rfind('\n') else { return report };
    let lines: String = warnings.iter().map(|warning| format!("warn: {warning}\n")).collect();
    report.text.insert_str(end + 1, &lines);
    report
}

/// Reports one check; none when there is no such check.
#[must_use]
pub fn single(name: &str, checks: &[Check]) -> Option<Report> {
    let (_, result) = checks.iter().find(|(held, _)| held == name)?;
    Some(match result {
        Ok(()) => Report { code: 200, text: "ok".to_owned() },
        Err(why) => Report { code: 500, text: format!("internal server error: {why}\n") },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(store: Result<(), &str>) -> Vec<Check> {
        vec![("ping".to_owned(), Ok(())), ("store".to_owned(), store.map_err(str::to_owned))]
    }

    fn code_and_text(store: Result<(), &str>, query: &str) -> (u16, String) {
        let report = report("readyz", &checks(store), &Query::parse(query), query.contains("reasons"));
        (report.code, report.text)
    }

    #[test]
    fn short_when_healthy_long_when_verbose_or_failing() {
        assert_eq!(code_and_text(Ok(()), ""), (200, "ok".to_owned()));
        assert_eq!(
            code_and_text(Ok(()), "verbose"),
            (200, "[+]ping ok\n[+]store ok\nreadyz check passed\n".to_owned())
        );
        assert_eq!(
            code_and_text(Err("gone"), ""),
            (500, "[+]ping ok\n[-]store failed: reason withheld\nreadyz check failed\n".to_owned())
        );
        assert_eq!(
            code_and_text(Err("gone"), "verbose&reasons"),
            (500, "[+]ping ok\n[-]store failed: gone\nreadyz check failed\n".to_owned())
        );
        assert_eq!(code_and_text(Err("gone"), "exclude=store"), (200, "ok".to_owned()));
        assert_eq!(
            code_and_text(Ok(()), "verbose&exclude=ping&exclude=nope"),
            (
                200,
                "[+]ping excluded: ok\n[+]store ok\nwarn: some health checks cannot be excluded: no matches for \
                 \"nope\"\nreadyz check passed\n"
                    .to_owned()
            )
        );
    }

    #[test]
    fn warnings_are_named_and_fail_nothing() {
        let report = report("readyz", &checks(Ok(())), &Query::parse("verbose"), true);
        let report = with_warnings(report, &["core/pods/a/b at revision 3: damaged".to_owned()]);
        let text = "[+]ping ok\n[+]store ok\nwarn: core/pods/a/b at revision 3: damaged\nreadyz check passed\n";
        assert_eq!((report.code, report.text.as_str()), (200, text));
    }

    #[test]
    fn one_check_alone() {
        assert_eq!(single("ping", &checks(Ok(()))), Some(Report { code: 200, text: "ok".to_owned() }));
        assert_eq!(
            single("store", &checks(Err("gone"))),
            Some(Report { code: 500, text: "internal server error: gone\n".to_owned() })
        );
        assert_eq!(single("nope", &checks(Ok(()))), None);
    }
}
