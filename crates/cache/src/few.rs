//! A list that is mostly of one: the first element needs no memory of its own.

/// Elements in the order they were pushed.
#[derive(Clone, Debug)]
pub struct Few<T> {
    /// None only when there are no others either.
    first: Option<T>,
    others: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Few { first: None, others: Vec::new() }
    }
}

impl<T> Few<T> {
    pub fn push(&mut self, element: T) {
        match self.first {
            None => self.first = Some(element),
            Some(_) => self.others.push(element),
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.others.last().or(self.first.as_ref())
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements = elements.into_iter();
        Few { first: elements.next(), others: elements.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_whatever_their_number() {
        for count in 0..4 {
            let mut pushed = Few::default();
            (0..count).for_each(|n| pushed.push(n));
            let collected: Few<_> = (0..count).collect();
            for few in [pushed, collected] {
                assert_eq!((few.len(), few.is_empty()), (count, count == 0));
                assert_eq!(few.last().copied(), count.checked_sub(1));
                assert!(few.iter().copied().eq(0..count));
                assert!(few.into_iter().eq(0..count));
            }
        }
    }
}
