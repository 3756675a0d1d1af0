//! The syntax tree of an expression after macro expansion. Nodes are in one vector and refer to each other by index.

/// The index of a node.
pub(crate) type Id = u32;

/// A constant in the text of the expression.
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

/// A field of a message: `name: value`.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: Box<str>,
    /// Offset of the colon, where errors of the field are reported.
    pub(crate) offset: u32,
    pub(crate) value: Id,
    pub(crate) optional: bool,
}

/// A loop over a list or a map; with `bind` set, it only names a value.
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
    /// `a && b && c` is one call with three arguments, and so is `||`.
    Call {
        function: Box<str>,
        target: Option<Id>,
        args: Vec<Id>,
    },
    List {
        elements: Vec<Id>,
        /// One flag per element; empty if no element is optional.
        optional: Vec<bool>,
    },
    Map(Vec<Entry>),
    Struct {
        name: Box<str>,
        fields: Vec<Field>,
    },
    Comprehension(Box<Comprehension>),
    /// A part that could not be parsed; an issue was reported.
    Error,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Offset in characters, as in [`crate::source::Issue`].
    pub(crate) offset: u32,
    /// Levels of the subtree, including this one.
    depth: u16,
    pub(crate) expr: Expr,
}

/// A whole expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ast {
    nodes: Vec<Node>,
    pub(crate) root: Id,
}

/// The limit that stops a tree from growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeLimit {
    Nodes,
    Depth,
}

impl Ast {
    /// Macros copy their arguments, so the length of the text does not bound the tree.
    pub(crate) const NODES_MAX: usize = 100_000;
    /// Functions recurse over the tree; this depth fits the stack of a thread in an unoptimised build.
    pub(crate) const DEPTH_MAX: u16 = 500;

    pub(crate) fn add(&mut self, offset: u32, expr: Expr) -> Result<Id, TreeLimit> {
        let mut depth = 0;
        each_child(&expr, &mut |child| depth = depth.max(self.node(child).depth));
        if depth >= Self::DEPTH_MAX {
            return Err(TreeLimit::Depth);
        }
        if self.nodes.len() >= Self::NODES_MAX {
            return Err(TreeLimit::Nodes);
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

    /// Levels of the whole tree.
    pub(crate) fn depth(&self) -> u16 {
        self.node(self.root).depth
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Copies a subtree, for a macro that uses an argument twice.
    pub(crate) fn copy(&mut self, id: Id) -> Result<Id, TreeLimit> {
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
            Expr::Struct { name, mut fields } => {
                for field in &mut fields {
                    field.value = self.copy(field.value)?;
                }
                Expr::Struct { name, fields }
            }
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

    fn copy_all(&mut self, ids: Vec<Id>) -> Result<Vec<Id>, TreeLimit> {
        ids.into_iter().map(|id| self.copy(id)).collect()
    }

    /// Returns `a.b.c` if the expression consists of nothing but a dotted name.
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

/// Calls `visit` with each child.
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
        Expr::Struct { fields, .. } => fields.iter().for_each(|field| visit(field.value)),
        Expr::Comprehension(inner) => {
            for id in [inner.range, inner.init, inner.condition, inner.step, inner.result] {
                visit(id);
            }
        }
    }
}
