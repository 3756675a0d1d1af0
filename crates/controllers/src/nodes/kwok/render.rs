//! Go templates, as far as stages use them: the result for an object.

use serde_json::Value;

use super::functions::{self, Facts};
use super::query::weight;
use super::template::{Node, Operand, Pipeline, Template};

/// Longest result.
const RESULT_BYTES_MAX: usize = 1024 * 1024;
/// Nodes of a template that are rendered, counting each turn of a loop.
const NODES_MAX: usize = 100_000;
/// Bytes of all values that a template works with, as [`weight`] counts them.
const WORK_MAX: usize = 64 * 1024 * 1024;
const TOO_MUCH_WORK: &str = "the template works with too many values";

impl Template {
    /// Renders the text for an object. The error says why it cannot be rendered.
    pub(in crate::nodes) fn render(&self, object: &Value, facts: &dyn Facts) -> Result<String, String> {
        let mut renderer = Renderer {
            variables: vec![(String::new(), object.clone())],
            facts,
            out: String::new(),
            nodes_left: NODES_MAX,
            work_left: WORK_MAX,
        };
        renderer.nodes(&self.0, object)?;
        Ok(renderer.out)
    }
}

struct Renderer<'a> {
    /// The innermost last; `$` has an empty name.
    variables: Vec<(String, Value)>,
    facts: &'a dyn Facts,
    out: String,
    nodes_left: usize,
    work_left: usize,
}

impl Renderer<'_> {
    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<(), String> {
        let known = self.variables.len();
        for node in nodes {
            self.nodes_left = self.nodes_left.checked_sub(1).ok_or("the template does not end")?;
            self.node(node, dot)?;
            if self.out.len() > RESULT_BYTES_MAX {
                return Err("the result has more than 1 MiB".to_owned());
            }
        }
        // What a block declares ends with it.
        self.variables.truncate(known);
        Ok(())
    }

    fn node(&mut self, node: &Node, dot: &Value) -> Result<(), String> {
        match node {
            Node::Text(text) => self.out.push_str(text),
            Node::Output(pipeline) => {
                let value = self.pipeline(pipeline, dot)?;
                if pipeline.variables.is_empty() {
                    self.out.push_str(&functions::shown(&value));
                }
            }
            Node::If { arms, otherwise } => {
                for (condition, body) in arms {
                    if functions::is_true(&self.pipeline(condition, dot)?) {
                        return self.nodes(body, dot);
                    }
                }
                return self.nodes(otherwise, dot);
            }
            Node::With { value, body, otherwise } => {
                let known = self.variables.len();
                let value = self.pipeline(value, dot)?;
                let done =
                    if functions::is_true(&value) { self.nodes(body, &value) } else { self.nodes(otherwise, dot) };
                self.variables.truncate(known);
                return done;
            }
            Node::Range { value, body, otherwise } => return self.range(value, body, otherwise, dot),
        }
        Ok(())
    }

    fn range(&mut self, pipeline: &Pipeline, body: &[Node], otherwise: &[Node], dot: &Value) -> Result<(), String> {
        let plain = Pipeline { variables: Vec::new(), ..pipeline.clone() };
        let items: Vec<(Value, Value)> = match self.pipeline(&plain, dot)? {
            Value::Array(items) => items.into_iter().enumerate().map(|(at, item)| (at.into(), item)).collect(),
            Value::Object(members) => {
                let mut members: Vec<(Value, Value)> =
                    members.into_iter().map(|(name, value)| (name.into(), value)).collect();
                members.sort_by(|left, right| left.0.as_str().cmp(&right.0.as_str()));
                members
            }
            Value::Null => Vec::new(),
            _ => return Err("range can't iterate over this value".to_owned()),
        };
        if items.is_empty() {
            return self.nodes(otherwise, dot);
        }
        let known = self.variables.len();
        for (at, item) in items {
            match pipeline.variables.as_slice() {
                [value] => self.variables.push((value.clone(), item.clone())),
                [index, value] => {
                    self.variables.push((index.clone(), at));
                    self.variables.push((value.clone(), item.clone()));
                }
                _ => {}
            }
            self.nodes(body, &item)?;
            self.variables.truncate(known);
        }
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Value, String> {
        let mut value: Option<Value> = None;
        for command in &pipeline.commands {
            value = Some(self.command(command, dot, value)?);
        }
        let value = value.unwrap_or_default();
        if let [name] = pipeline.variables.as_slice() {
            if pipeline.declares {
                self.variables.push((name.clone(), value.clone()));
            } else if let Some((_, known)) = self.variables.iter_mut().rev().find(|(known, _)| known == name) {
                *known = value.clone();
            } else {
                return Err(format!("undefined variable \"${name}\""));
            }
        }
        Ok(value)
    }

    fn command(&mut self, command: &[Operand], dot: &Value, piped: Option<Value>) -> Result<Value, String> {
        let Some((first, rest)) = command.split_first() else { return Ok(Value::Null) };
        let Operand::Function(name) = first else {
            if !rest.is_empty() || piped.is_some() {
                return Err("can't give argument to non-function".to_owned());
            }
            return self.operand(first, dot);
        };
        let mut arguments = Vec::new();
        for operand in rest {
            arguments.push(self.operand(operand, dot)?);
        }
        arguments.extend(piped);
        let value = functions::call(name, arguments, self.facts)?;
        self.work(&value)?;
        Ok(value)
    }

    /// Counts a value before it is copied or kept.
    fn work(&mut self, value: &Value) -> Result<(), String> {
        let left = self.work_left.checked_sub(weight(value));
        self.work_left = left.ok_or(TOO_MUCH_WORK)?;
        Ok(())
    }

    fn operand(&mut self, operand: &Operand, dot: &Value) -> Result<Value, String> {
        let computed;
        let found = match operand {
            Operand::Field(names) => field(dot, names),
            Operand::Variable(name, names) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                let (_, value) = found.ok_or_else(|| format!("undefined variable \"${name}\""))?;
                field(value, names)
            }
            Operand::Literal(value) => Some(value),
            Operand::Function(name) => {
                computed = functions::call(name, Vec::new(), self.facts)?;
                Some(&computed)
            }
            Operand::Nested(pipeline, names) => {
                computed = self.pipeline(pipeline, dot)?;
                field(&computed, names)
            }
        };
        let Some(found) = found else { return Ok(Value::Null) };
        let left = self.work_left.checked_sub(weight(found));
        self.work_left = left.ok_or(TOO_MUCH_WORK)?;
        Ok(found.clone())
    }
}

/// A field of a field of a value; none where one is missing.
fn field<'v>(value: &'v Value, names: &[String]) -> Option<&'v Value> {
    names.iter().try_fold(value, |value, name| value.get(name))
}
