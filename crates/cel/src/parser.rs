//! Parses the text of an expression into a tree.
//!
//! The length of the text, its nesting and, since macros copy their arguments, the number of nodes
//! ([`crate::ast::Ast::NODES_MAX`]) are bounded. Error texts are those of the grammar that Kubernetes uses.

use crate::ast::{Ast, Entry, Expr, Field, Id, Literal, TreeLimit};
use crate::lexer::{self, Kind, Token};
use crate::source::Issues;
use crate::{literal, macros};

/// Length in characters.
const LENGTH_MAX: usize = 100_000;
const NESTING_MAX: u16 = 250;

const START: &str = "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                     BYTES, IDENTIFIER";
const START_OR_CLOSE: &str = "'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
                              NUM_UINT, STRING, BYTES, IDENTIFIER";
const START_OR_OPTIONAL: &str = "'[', '{', '(', '.', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
                                 NUM_UINT, STRING, BYTES, IDENTIFIER";

/// Words that can only name a field.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Parsing cannot continue; the reason was reported.
struct Stop;

/// A node and its nesting of operators: chains such as `a.b.c` count as nesting.
#[derive(Clone, Copy)]
struct Subtree {
    id: Id,
    weight: u16,
}

type Parsed = Result<Subtree, Stop>;

/// Parses an expression.
pub(crate) fn parse(text: &str) -> Result<Ast, Issues> {
    let mut issues = Issues::default();
    let length = text.chars().count();
    if length > LENGTH_MAX {
        issues.report_whole(format!("expression code point size exceeds limit: size: {length}, limit {LENGTH_MAX}"));
        return Err(issues);
    }
    let text: Vec<char> = text.chars().collect();
    let tokens = lexer::tokens(&text, &mut issues);
    let mut parser = Parser { text, tokens, at: 0, nesting: 0, ast: Ast::default(), issues };
    if let Ok(root) = parser.expr() {
        parser.ast.root = root.id;
        parser.end();
    }
    if parser.issues.is_empty() { Ok(parser.ast) } else { Err(parser.issues) }
}

struct Parser {
    text: Vec<char>,
    tokens: Vec<Token>,
    at: usize,
    nesting: u16,
    ast: Ast,
    issues: Issues,
}

impl Parser {
    fn token(&self) -> Token {
        self.tokens[self.at]
    }

    fn kind(&self) -> Kind {
        self.token().kind
    }

    fn kind_after(&self) -> Kind {
        self.tokens.get(self.at + 1).map_or(Kind::Eof, |token| token.kind)
    }

    fn is(&self, mark: &str) -> bool {
        matches!(self.kind(), Kind::Mark(found) if found == mark)
    }

    fn next(&mut self) -> Token {
        let token = self.token();
        if token.kind != Kind::Eof {
            self.at += 1;
        }
        token
    }

    fn accept(&mut self, mark: &str) -> Option<u32> {
        self.is(mark).then(|| self.next().start)
    }

    fn raw(&self, token: Token) -> String {
        self.text[token.start as usize..token.end as usize].iter().collect()
    }

    fn token_text(&self, token: Token) -> String {
        match token.kind {
            Kind::Eof => "<EOF>".to_owned(),
            _ => lexer::escape(&self.text[token.start as usize..token.end as usize]),
        }
    }

    fn syntax(&mut self, what: &str) {
        let start = self.token().start;
        self.issues.report(start, format!("Syntax error: {what}"));
    }

    /// Consumes an expected token. An extra token before it is skipped and a missing one is assumed, if the next token
    /// allows it; otherwise parsing stops.
    fn expect(&mut self, mark: &'static str) -> Result<u32, Stop> {
        if let Some(start) = self.accept(mark) {
            return Ok(start);
        }
        let found = self.token_text(self.token());
        if self.kind_after() == Kind::Mark(mark) && self.kind() != Kind::Eof {
            self.syntax(&format!("extraneous input '{found}' expecting '{mark}'"));
            self.next();
            return Ok(self.next().start);
        }
        if mark != ":" && (self.kind() == Kind::Eof || matches!(self.kind(), Kind::Mark(")" | "]" | "}" | ","))) {
            self.syntax(&format!("missing '{mark}' at '{found}'"));
            return Ok(self.token().start);
        }
        self.syntax(&format!("mismatched input '{found}' expecting '{mark}'"));
        Err(Stop)
    }

    fn end(&mut self) {
        if self.kind() == Kind::Eof {
            return;
        }
        let found = self.token_text(self.token());
        let word = if self.kind_after() == Kind::Eof { "extraneous" } else { "mismatched" };
        self.syntax(&format!("{word} input '{found}' expecting <EOF>"));
    }

    fn starts(kind: Kind) -> bool {
        match kind {
            Kind::Mark(mark) => matches!(mark, "[" | "{" | "(" | "." | "-" | "!"),
            Kind::Eof | Kind::In | Kind::EscapedIdent => false,
            _ => true,
        }
    }

    /// Checks that an expression can start here.
    fn expect_start(&mut self, expected: &str) -> Result<(), Stop> {
        if Self::starts(self.kind()) {
            return Ok(());
        }
        let found = self.token_text(self.token());
        if Self::starts(self.kind_after()) && self.kind() != Kind::Eof {
            self.syntax(&format!("extraneous input '{found}' expecting {{{expected}}}"));
            self.next();
            return Ok(());
        }
        self.syntax(&format!("mismatched input '{found}' expecting {{{expected}}}"));
        Err(Stop)
    }

    fn add(&mut self, offset: u32, expr: Expr, weight: u16) -> Parsed {
        if weight > NESTING_MAX {
            self.issues.report_whole("max recursion depth exceeded");
            return Err(Stop);
        }
        let added = self.ast.add(offset, expr);
        Ok(Subtree { id: self.grown(added)?, weight })
    }

    fn grown(&mut self, added: Result<Id, TreeLimit>) -> Result<Id, Stop> {
        added.map_err(|limit| {
            self.issues.report_whole(match limit {
                TreeLimit::Nodes => format!("expression node limit exceeded: {}", Ast::NODES_MAX),
                TreeLimit::Depth => "max recursion depth exceeded".to_owned(),
            });
            Stop
        })
    }

    fn expr(&mut self) -> Parsed {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            self.issues.report_whole(format!("expression recursion limit exceeded: {NESTING_MAX}"));
            return Err(Stop);
        }
        let mut part = self.logic("||")?;
        if let Some(offset) = self.accept("?") {
            let yes = self.logic("||")?;
            self.expect(":")?;
            let no = self.expr()?;
            let weight = part.weight.max(yes.weight).max(no.weight) + 1;
            part = self.operator(offset, "_?_:_", vec![part.id, yes.id, no.id], weight)?;
        }
        self.nesting -= 1;
        Ok(part)
    }

    fn operator(&mut self, offset: u32, function: &str, args: Vec<Id>, weight: u16) -> Parsed {
        self.add(offset, Expr::Call { function: function.into(), target: None, args }, weight)
    }

    /// Parses `a || b || c` or `a && b && c` into one node, so that many terms do not nest.
    fn logic(&mut self, mark: &'static str) -> Parsed {
        let first = if mark == "||" { self.logic("&&")? } else { self.relation()? };
        let mut offset = None;
        let mut terms = vec![first.id];
        let mut weight = first.weight;
        while let Some(start) = self.accept(mark) {
            offset.get_or_insert(start);
            let term = if mark == "||" { self.logic("&&")? } else { self.relation()? };
            terms.push(term.id);
            weight = weight.max(term.weight);
        }
        match offset {
            None => Ok(first),
            Some(offset) => self.operator(offset, if mark == "||" { "_||_" } else { "_&&_" }, terms, weight),
        }
    }

    fn relation(&mut self) -> Parsed {
        let mut left = self.calculation(0)?;
        loop {
            let function = match self.kind() {
                Kind::Mark("<") => "_<_",
                Kind::Mark("<=") => "_<=_",
                Kind::Mark(">=") => "_>=_",
                Kind::Mark(">") => "_>_",
                Kind::Mark("==") => "_==_",
                Kind::Mark("!=") => "_!=_",
                Kind::In => "@in",
                _ => return Ok(left),
            };
            let offset = self.next().start;
            let right = self.calculation(0)?;
            let weight = left.weight.max(right.weight) + 1;
            left = self.operator(offset, function, vec![left.id, right.id], weight)?;
        }
    }

    fn calculation(&mut self, binding: u8) -> Parsed {
        let mut left = self.unary()?;
        loop {
            let (function, strength) = match self.kind() {
                Kind::Mark("*") => ("_*_", 2),
                Kind::Mark("/") => ("_/_", 2),
                Kind::Mark("%") => ("_%_", 2),
                Kind::Mark("+") => ("_+_", 1),
                Kind::Mark("-") => ("_-_", 1),
                _ => return Ok(left),
            };
            if strength <= binding {
                return Ok(left);
            }
            let offset = self.next().start;
            let right = self.calculation(strength)?;
            let weight = left.weight.max(right.weight) + 1;
            left = self.operator(offset, function, vec![left.id, right.id], weight)?;
        }
    }

    fn unary(&mut self) -> Parsed {
        self.expect_start(START)?;
        let (mark, function) = match self.kind() {
            Kind::Mark("!") => ("!", "!_"),
            Kind::Mark("-") => ("-", "-_"),
            _ => return self.member(None),
        };
        let offset = self.next().start;
        let mut count = 1;
        while self.accept(mark).is_some() {
            count += 1;
        }
        if mark == "-" && count == 1 && matches!(self.kind(), Kind::Int | Kind::Float) {
            return self.member(Some(offset));
        }
        if !Self::starts(self.kind()) || matches!(self.kind(), Kind::Mark("!" | "-")) {
            let found = self.token_text(self.token());
            if mark == "-" {
                let found = if self.kind() == Kind::Eof { String::new() } else { found };
                self.syntax(&format!("no viable alternative at input '{}{found}'", "-".repeat(count)));
            } else {
                self.syntax(&format!("extraneous input '{found}' expecting {{{START}}}"));
            }
            return Err(Stop);
        }
        let member = self.member(None)?;
        if count % 2 == 0 {
            return Ok(member);
        }
        self.operator(offset, function, vec![member.id], member.weight)
    }

    /// Parses a primary expression with its fields, calls and indexes. `minus` is the offset of the sign of a number.
    fn member(&mut self, minus: Option<u32>) -> Parsed {
        let mut part = self.primary(minus)?;
        loop {
            if let Some(dot) = self.accept(".") {
                part = self.after_dot(part, dot)?;
            } else if let Some(offset) = self.accept("[") {
                let optional = self.accept("?").is_some();
                self.expect_start(if optional { START } else { START_OR_OPTIONAL })?;
                let index = self.expr()?;
                self.expect("]")?;
                let function = if optional { "_[?_]" } else { "_[_]" };
                let weight = part.weight.max(index.weight) + 1;
                part = self.operator(offset, function, vec![part.id, index.id], weight)?;
            } else {
                return Ok(part);
            }
        }
    }

    fn after_dot(&mut self, part: Subtree, dot: u32) -> Parsed {
        let optional = self.accept("?").is_some();
        let token = self.token();
        match token.kind {
            Kind::Ident => {}
            Kind::EscapedIdent => self.issues.report(token.start, "unsupported syntax: '`'"),
            Kind::True | Kind::False | Kind::Null => {
                let found = self.token_text(token);
                self.syntax(&format!("mismatched input '{found}' expecting IDENTIFIER"));
                self.next();
                return Ok(part);
            }
            _ => {
                let found = if token.kind == Kind::Eof { String::new() } else { self.token_text(token) };
                self.syntax(&format!("no viable alternative at input '.{found}'"));
                return Err(Stop);
            }
        }
        self.next();
        let name = self.raw(token);
        if optional {
            let literal = Expr::Literal(Literal::String(name.into()));
            let field = self.add(token.start, literal, 0)?;
            return self.operator(dot, "_?._", vec![part.id, field.id], part.weight + 1);
        }
        let Some(open) = self.accept("(") else {
            let select = Expr::Select { operand: part.id, field: name.into(), test: false };
            return self.add(dot, select, part.weight + 1);
        };
        let (args, weight) = self.arguments()?;
        let weight = part.weight.max(weight) + 1;
        self.call(open, &name, Some(part.id), args, weight)
    }

    /// Parses arguments up to and including the closing parenthesis.
    fn arguments(&mut self) -> Result<(Vec<Id>, u16), Stop> {
        let mut args = Vec::new();
        let mut weight = 0;
        if self.accept(")").is_some() {
            return Ok((args, weight));
        }
        self.expect_start(START_OR_CLOSE)?;
        loop {
            let arg = self.expr()?;
            args.push(arg.id);
            weight = weight.max(arg.weight);
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect(")")?;
        Ok((args, weight))
    }

    fn call(&mut self, offset: u32, name: &str, target: Option<Id>, args: Vec<Id>, weight: u16) -> Parsed {
        match macros::expand(&mut self.ast, offset, name, target, &args) {
            Ok(Some(id)) => Ok(Subtree { id, weight }),
            Ok(None) => self.add(offset, Expr::Call { function: name.into(), target, args }, weight),
            Err(macros::MacroError::TreeLimit(limit)) => {
                let id = self.grown(Err(limit))?;
                Ok(Subtree { id, weight })
            }
            Err(macros::MacroError::Argument { offset, message }) => {
                self.issues.report(offset, message);
                self.add(offset, Expr::Error, weight)
            }
        }
    }

    fn primary(&mut self, minus: Option<u32>) -> Parsed {
        let token = self.token();
        match token.kind {
            Kind::Ident => self.name(None),
            Kind::Mark(".") => {
                self.next();
                if self.kind() != Kind::Ident {
                    let found = if self.kind() == Kind::Eof { String::new() } else { self.token_text(self.token()) };
                    self.syntax(&format!("no viable alternative at input '.{found}'"));
                    return Err(Stop);
                }
                self.name(Some(token.start))
            }
            Kind::Mark("(") => {
                self.next();
                let part = self.expr()?;
                self.expect(")")?;
                Ok(part)
            }
            Kind::Mark("[") => self.list(),
            Kind::Mark("{") => self.map(),
            _ => self.literal(minus),
        }
    }

    fn name(&mut self, leading_dot: Option<u32>) -> Parsed {
        if let Some(open) = self.message_follows() {
            return self.message(leading_dot.is_some(), open);
        }
        let token = self.next();
        let name = self.raw(token);
        let open = self.accept("(");
        if RESERVED.contains(&&*name) {
            let start = leading_dot.unwrap_or(token.start);
            self.issues.report(start, format!("reserved identifier: {name}"));
            if open.is_some() {
                self.arguments()?;
            }
            return self.add(start, Expr::Error, 0);
        }
        let name = if leading_dot.is_some() { format!(".{name}") } else { name };
        match open {
            None => self.add(token.start, Expr::Ident(name.into()), 0),
            Some(open) => {
                let (args, weight) = self.arguments()?;
                self.call(open, &name, None, args, weight)
            }
        }
    }

    /// Returns the index of the brace token if `a.b.c{` starts here.
    fn message_follows(&self) -> Option<usize> {
        let mut at = self.at;
        loop {
            let kind = |at: usize| self.tokens.get(at).map_or(Kind::Eof, |token| token.kind);
            if kind(at) != Kind::Ident {
                return None;
            }
            match kind(at + 1) {
                Kind::Mark("{") => return Some(at + 1),
                Kind::Mark(".") => at += 2,
                _ => return None,
            }
        }
    }

    fn message(&mut self, leading_dot: bool, open: usize) -> Parsed {
        let mut name = if leading_dot { ".".to_owned() } else { String::new() };
        while self.at < open {
            let token = self.next();
            name.push_str(&self.raw(token));
        }
        let offset = self.next().start;
        let mut fields = Vec::new();
        let mut weight = 0;
        while !self.is("}") {
            let optional = self.accept("?").is_some();
            if self.kind() != Kind::Ident {
                break;
            }
            let token = self.next();
            let name = self.raw(token).into();
            let offset = self.expect(":")?;
            let value = self.expr()?;
            fields.push(Field { name, offset, value: value.id, optional });
            weight = weight.max(value.weight);
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        self.add(offset, Expr::Struct { name: name.into(), fields }, weight)
    }

    /// Consumes a closing bracket; the error mentions that a comma is possible too.
    fn close(&mut self, mark: &'static str) -> Result<(), Stop> {
        if self.accept(mark).is_some() {
            return Ok(());
        }
        let found = self.token_text(self.token());
        self.syntax(&format!("mismatched input '{found}' expecting {{'{mark}', ','}}"));
        Err(Stop)
    }

    fn list(&mut self) -> Parsed {
        let offset = self.next().start;
        let mut elements = Vec::new();
        let mut optional = Vec::new();
        let mut weight = 0;
        if self.accept(",").is_some() {
            self.expect("]")?;
            return self.add(offset, Expr::List { elements, optional }, weight);
        }
        while !self.is("]") {
            if self.is(",") {
                let found = self.token_text(self.token());
                self.syntax(&format!("mismatched input '{found}' expecting ']'"));
                return Err(Stop);
            }
            optional.push(self.accept("?").is_some());
            let element = self.expr()?;
            elements.push(element.id);
            weight = weight.max(element.weight);
            if self.accept(",").is_none() {
                break;
            }
        }
        self.close("]")?;
        if !optional.contains(&true) {
            optional = Vec::new();
        }
        self.add(offset, Expr::List { elements, optional }, weight)
    }

    fn map(&mut self) -> Parsed {
        let offset = self.next().start;
        let mut entries = Vec::new();
        let mut weight = 0;
        if self.accept(",").is_some() {
            self.expect("}")?;
            return self.add(offset, Expr::Map(entries), weight);
        }
        while !self.is("}") {
            let optional = self.accept("?").is_some();
            let key = self.expr()?;
            self.expect(":")?;
            let value = self.expr()?;
            entries.push(Entry { key: key.id, value: value.id, optional });
            weight = weight.max(key.weight).max(value.weight);
            if self.accept(",").is_none() {
                break;
            }
        }
        self.close("}")?;
        self.add(offset, Expr::Map(entries), weight)
    }

    fn literal(&mut self, minus: Option<u32>) -> Parsed {
        let token = self.next();
        let start = minus.unwrap_or(token.start);
        let text = self.raw(token);
        let signed = |text: &str| if minus.is_some() { format!("-{text}") } else { text.to_owned() };
        let value = match token.kind {
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            Kind::Null => Ok(Literal::Null),
            Kind::Int => match text.strip_prefix("0x") {
                Some(digits) => i64::from_str_radix(&signed(digits), 16),
                None => signed(&text).parse(),
            }
            .map(Literal::Int)
            .map_err(|_| "invalid int literal"),
            Kind::Uint => {
                let digits = &text[..text.len() - 1];
                match digits.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => digits.parse(),
                }
                .map(Literal::Uint)
                .map_err(|_| "invalid uint literal")
            }
            Kind::Float => match signed(&text).parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(Literal::Double(value)),
                _ => Err("invalid double literal"),
            },
            Kind::String => literal::string(&text).map(|text| Literal::String(text.into())),
            Kind::Bytes => literal::bytes(&text).map(|bytes| Literal::Bytes(bytes.into())),
            _ => Err("unexpected token"),
        };
        match value {
            Ok(value) => self.add(start, Expr::Literal(value), 0),
            Err(message) => {
                self.issues.report(start, message);
                self.add(start, Expr::Error, 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders a tree as nested lists: `(_+_ 1 (_*_ 2 3))`. A field is `(. a b)`, a target is the first argument.
    fn tree(ast: &Ast, id: Id) -> String {
        let join = |ids: &[Id]| ids.iter().map(|id| tree(ast, *id)).collect::<Vec<_>>().join(" ");
        let mark = |optional: bool| if optional { "?" } else { "" };
        match ast.expr(id) {
            Expr::Literal(Literal::Null) => "null".to_owned(),
            Expr::Literal(Literal::Bool(value)) => value.to_string(),
            Expr::Literal(Literal::Int(value)) => value.to_string(),
            Expr::Literal(Literal::Uint(value)) => format!("{value}u"),
            Expr::Literal(Literal::Double(value)) => format!("{value:?}"),
            Expr::Literal(Literal::String(text)) => format!("{text:?}"),
            Expr::Literal(Literal::Bytes(bytes)) => format!("b{bytes:?}"),
            Expr::Ident(name) => name.to_string(),
            Expr::Select { operand, field, test } => {
                format!("({} {} {field})", if *test { "has" } else { "." }, tree(ast, *operand))
            }
            Expr::Call { function, target, args } => {
                let operands: Vec<Id> = target.iter().chain(args).copied().collect();
                format!("({function} {})", join(&operands)).replace(" )", ")")
            }
            Expr::List { elements, optional } => {
                let marked =
                    |(at, id): (usize, &Id)| mark(optional.get(at) == Some(&true)).to_owned() + &tree(ast, *id);
                format!("[{}]", elements.iter().enumerate().map(marked).collect::<Vec<_>>().join(" "))
            }
            Expr::Map(entries) => {
                let shown = |entry: &Entry| {
                    format!("{}{}: {}", mark(entry.optional), tree(ast, entry.key), tree(ast, entry.value))
                };
                format!("{{{}}}", entries.iter().map(shown).collect::<Vec<_>>().join(", "))
            }
            Expr::Struct { name, fields } => {
                let shown =
                    |field: &Field| format!("{}{}: {}", mark(field.optional), field.name, tree(ast, field.value));
                format!("{name}{{{}}}", fields.iter().map(shown).collect::<Vec<_>>().join(", "))
            }
            Expr::Comprehension(inner) if inner.bind => {
                format!("(let {} = {} in {})", inner.accumulator, tree(ast, inner.init), tree(ast, inner.result))
            }
            Expr::Comprehension(inner) => {
                let second = inner.second.as_ref().map_or(String::new(), |name| format!(", {name}"));
                format!(
                    "(for {}{second} in {} from {} while {} step {} result {})",
                    inner.variable,
                    tree(ast, inner.range),
                    tree(ast, inner.init),
                    tree(ast, inner.condition),
                    tree(ast, inner.step),
                    tree(ast, inner.result)
                )
            }
            Expr::Error => "error".to_owned(),
        }
    }

    fn parsed(text: &str) -> String {
        let ast = parse(text).unwrap_or_else(|issues| panic!("{}", issues.render(text)));
        tree(&ast, ast.root)
    }

    #[test]
    fn operators_bind_by_precedence_and_to_the_left() {
        for (text, want) in [
            ("1 + 2 * 3", "(_+_ 1 (_*_ 2 3))"),
            ("1 * 2 + 3", "(_+_ (_*_ 1 2) 3)"),
            ("1 - 2 - 3", "(_-_ (_-_ 1 2) 3)"),
            ("8 / 4 % 3", "(_%_ (_/_ 8 4) 3)"),
            ("(1 + 2) * 3", "(_*_ (_+_ 1 2) 3)"),
            ("a + 1 < b == c", "(_==_ (_<_ (_+_ a 1) b) c)"),
            ("a in b && c", "(_&&_ (@in a b) c)"),
            ("a || b && c || d", "(_||_ a (_&&_ b c) d)"),
            ("a ? b : c ? d : e", "(_?_:_ a b (_?_:_ c d e))"),
            ("a || b ? c : d", "(_?_:_ (_||_ a b) c d)"),
        ] {
            assert_eq!(parsed(text), want, "{text}");
        }
    }

    #[test]
    fn signs_and_negations_in_pairs_cancel_out() {
        for (text, want) in [
            ("!a", "(!_ a)"),
            ("!!a", "a"),
            ("!!!a.b", "(!_ (. a b))"),
            ("--a", "a"),
            ("-a", "(-_ a)"),
            ("1 - -2", "(_-_ 1 -2)"),
            // The sign belongs to the literal: the positive number would not fit.
            ("-9223372036854775808", "-9223372036854775808"),
        ] {
            assert_eq!(parsed(text), want, "{text}");
        }
    }

    #[test]
    fn members_chain_from_left_to_right() {
        for (text, want) in [
            ("a.b[0].f(x, 1)", "(f (_[_] (. a b) 0) x 1)"),
            ("a.?b[?c]", "(_[?_] (_?._ a \"b\") c)"),
            (".a.b", "(. .a b)"),
            ("f()", "(f)"),
            ("[1, ?a]", "[1 ?a]"),
            ("{'k': 1u, ?'o': b}", "{\"k\": 1u, ?\"o\": b}"),
            ("{1: 1.5, true: null,}", "{1: 1.5, true: null}"),
            ("a.b.C{x: 1, ?y: a}", "a.b.C{x: 1, ?y: a}"),
            ("b'a'", "b[97]"),
        ] {
            assert_eq!(parsed(text), want, "{text}");
        }
    }

    #[test]
    fn macros_expand_to_loops_and_bindings() {
        for (text, want) in [
            ("has(a.b)", "(has a b)"),
            (
                "l.all(x, x)",
                "(for x in l from true while (@not_strictly_false @result) step (_&&_ @result x) result @result)",
            ),
            (
                "l.exists(k, v, v)",
                "(for k, v in l from false while (@not_strictly_false (!_ @result)) step (_||_ @result v) result @result)",
            ),
            (
                "l.filter(x, p)",
                "(for x in l from [] while true step (_?_:_ p (_+_ @result [x]) @result) result @result)",
            ),
            ("o.optMap(x, y)", "(_?_:_ (hasValue o) (optional.of (let x = (value o) in y)) (optional.none))"),
            // With another number of arguments it is an ordinary call.
            ("l.all(x)", "(all l x)"),
        ] {
            assert_eq!(parsed(text), want, "{text}");
        }
    }

    #[test]
    fn errors_name_the_offset_and_the_expected_tokens() {
        let expected = format!("{{{START}}}");
        for (text, offset, want) in [
            ("1 +", 3, format!("Syntax error: mismatched input '<EOF>' expecting {expected}")),
            ("(1", 2, "Syntax error: missing ')' at '<EOF>'".to_owned()),
            ("[1 2]", 3, "Syntax error: mismatched input '2' expecting {']', ','}".to_owned()),
            ("1 2", 2, "Syntax error: extraneous input '2' expecting <EOF>".to_owned()),
            ("a.", 2, "Syntax error: no viable alternative at input '.'".to_owned()),
            ("a ? b", 5, "Syntax error: mismatched input '<EOF>' expecting ':'".to_owned()),
            ("é == for", 5, "reserved identifier: for".to_owned()),
            ("9223372036854775808", 0, "invalid int literal".to_owned()),
            ("has(a)", 4, "invalid argument to has() macro".to_owned()),
            ("l.all(1, true)", 6, "argument must be a simple name".to_owned()),
            ("l.all(a, a, true)", 9, "duplicate variable name: a".to_owned()),
            ("l.all(__result__, true)", 6, "iteration variable overwrites accumulator variable".to_owned()),
        ] {
            let issues = parse(text).expect_err(text);
            let found: Vec<_> = issues.list().iter().map(|issue| (issue.offset, &*issue.message)).collect();
            assert!(found.contains(&(Some(offset), &*want)), "{text}: {found:?}");
        }
    }

    #[test]
    fn depth_is_bounded_for_brackets_and_for_chains() {
        let nested = |depth: usize| "(".repeat(depth) + "1" + &")".repeat(depth);
        let chain = |length: usize| "a".to_owned() + &".a".repeat(length);
        let message = |text: &str| parse(text).err().map(|issues| issues.list()[0].message.clone());
        assert_eq!(message(&nested(249)), None);
        assert_eq!(message(&nested(250)).as_deref(), Some("expression recursion limit exceeded: 250"));
        assert_eq!(message(&chain(250)), None);
        assert_eq!(message(&chain(251)).as_deref(), Some("max recursion depth exceeded"));
        // Terms of one operator are one node, however many there are.
        assert_eq!(message(&("a".to_owned() + &" || a".repeat(1_000))), None);
    }
}
