//! The tree of an expression, after macros were expanded: nodes in one vector that name each other by number.

/// The number of a node.
pub(crate) type Id = u32;

/// A value written in the expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Box<[u8]>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Id,
    pub(crate) value: Id,
    pub(crate) optional: bool,
}

/// A loop over a list or a map, or, where `bind` is set, a name for a value.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: Id,
    pub(crate) variable: Box<str>,
    pub(crate) second: Option<Box<str>>,
    pub(crate) accumulator: Box<str>,
    pub(crate) init: Id,
    pub(crate) condition: Id,
    pub(crate) step: Id,
    pub(crate) result: Id,
    pub(crate) bind: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Literal(Literal),
    Ident(Box<str>),
    Select {
        operand: Id,
        field: Box<str>,
        /// `has(operand.field)`
        test: bool,
    },
    /// `&&` and `||` have as many arguments as the text has terms.
    Call {
        function: Box<str>,
        target: Option<Id>,
        args: Vec<Id>,
    },
    List {
        elements: Vec<Id>,
        /// As long as the elements, or empty where none is optional.
        optional: Vec<bool>,
    },
    Map(Vec<Entry>),
    Struct {
        name: Box<str>,
        values: Vec<Id>,
    },
    Comprehension(Box<Comprehension>),
    /// What could not be read; there is an issue about it.
    Error,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// In characters, as [`crate::source::Issue`] counts.
    pub(crate) offset: u32,
    /// How many levels there are below and with this one.
    depth: u16,
    pub(crate) expr: Expr,
}

/// A whole expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ast {
    nodes: Vec<Node>,
    pub(crate) root: Id,
}

/// Why a tree is not made larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overgrown {
    Nodes,
    Depth,
}

impl Ast {
    /// Macros copy their arguments, so the text's length alone does not bound the tree.
    pub(crate) const NODES_MAX: usize = 100_000;
    /// Every walk over a tree recurses; this is what the stack of a thread bears in a build without optimisation.
    pub(crate) const DEPTH_MAX: u16 = 500;

    pub(crate) fn add(&mut self, offset: u32, expr: Expr) -> Result<Id, Overgrown> {
        let mut depth = 0;
        each_child(&expr, &mut |child| depth = depth.max(self.node(child).depth));
        if depth >= Self::DEPTH_MAX {
            return Err(Overgrown::Depth);
        }
        if self.nodes.len() >= Self::NODES_MAX {
            return Err(Overgrown::Nodes);
        }
        self.nodes.push(Node { offset, depth: depth + 1, expr });
        Ok((self.nodes.len() - 1) as Id)
    }

    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    pub(crate) fn expr(&self, id: Id) -> &Expr {
        &self.nodes[id as usize].expr
    }

    pub(crate) fn offset(&self, id: Id) -> u32 {
        self.nodes[id as usize].offset
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// A second tree like this one, for a macro that uses an argument twice.
    pub(crate) fn copy(&mut self, id: Id) -> Result<Id, Overgrown> {
        let node = self.node(id).clone();
        let expr = match node.expr {
            Expr::Select { operand, field, test } => Expr::Select { operand: self.copy(operand)?, field, test },
            Expr::Call { function, target, args } => Expr::Call {
                function,
                target: target.map(|target| self.copy(target)).transpose()?,
                args: self.copy_all(args)?,
            },
            Expr::List { elements, optional } => Expr::List { elements: self.copy_all(elements)?, optional },
            Expr::Map(entries) => {
                let mut copies = Vec::with_capacity(entries.len());
                for Entry { key, value, optional } in entries {
                    copies.push(Entry { key: self.copy(key)?, value: self.copy(value)?, optional });
                }
                Expr::Map(copies)
            }
            Expr::Struct { name, values } => Expr::Struct { name, values: self.copy_all(values)? },
            Expr::Comprehension(mut inner) => {
                for part in
                    [&mut inner.range, &mut inner.init, &mut inner.condition, &mut inner.step, &mut inner.result]
                {
                    *part = self.copy(*part)?;
                }
                Expr::Comprehension(inner)
            }
            leaf @ (Expr::Literal(_) | Expr::Ident(_) | Expr::Error) => leaf,
        };
        self.add(node.offset, expr)
    }

    fn copy_all(&mut self, ids: Vec<Id>) -> Result<Vec<Id>, Overgrown> {
        ids.into_iter().map(|id| self.copy(id)).collect()
    }

    /// `a.b.c` as a name, where the expression is nothing else.
    pub(crate) fn qualified_name(&self, id: Id) -> Option<String> {
        match self.expr(id) {
            Expr::Ident(name) => Some(name.to_string()),
            Expr::Select { operand, field, test: false } => {
                let mut name = self.qualified_name(*operand)?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}

/// Calls `visit` with each node directly below.
pub(crate) fn each_child(expr: &Expr, visit: &mut dyn FnMut(Id)) {
    match expr {
        Expr::Literal(_) | Expr::Ident(_) | Expr::Error => {}
        Expr::Select { operand, .. } => visit(*operand),
        Expr::Call { target, args, .. } => target.iter().chain(args).for_each(|id| visit(*id)),
        Expr::List { elements, .. } => elements.iter().for_each(|id| visit(*id)),
        Expr::Map(entries) => entries.iter().for_each(|entry| {
            visit(entry.key);
            visit(entry.value);
        }),
        Expr::Struct { values, .. } => values.iter().for_each(|id| visit(*id)),
        Expr::Comprehension(inner) => {
            for id in [inner.range, inner.init, inner.condition, inner.step, inner.result] {
                visit(id);
            }
        }
    }
}
