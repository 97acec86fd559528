//! Parameters of a running mechanism: what they are, and a value for each.

/// One parameter.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, unit included: `max_lifetime_ms`.
    pub name: &'static str,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// The value that it starts with.
    pub default: i64,
    /// What it sets, in one line.
    pub summary: &'static str,
}

/// A value for each parameter of a mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    table: &'static [Parameter],
    values: Vec<i64>,
}

/// A parameter or a value that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// No such parameter.
    #[error("`{name}` is no parameter; there are: {known}")]
    Unknown {
        /// What was given.
        name: String,
        /// All names.
        known: String,
    },
    /// Not a whole number.
    #[error("{name}={value}: not a whole number")]
    NoNumber {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: String,
    },
    /// Outside the range.
    #[error("{name}={value}: it must lie from {min} to {max}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: i64,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
}

impl Parameters {
    /// The defaults of a table.
    pub fn new(table: &'static [Parameter]) -> Self {
        Parameters {
            table,
            values: table.iter().map(|parameter| parameter.default).collect(),
        }
    }

    /// A value by the parameter's name.
    ///
    /// # Errors
    /// There is no such parameter.
    pub fn get(&self, name: &str) -> Result<i64, ParameterError> {
        Ok(self.values[self.position(name)?])
    }

    /// Sets a value.
    ///
    /// # Errors
    /// There is no such parameter, or the value lies outside its range.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ParameterError> {
        let at = self.position(name)?;
        let &Parameter { name, min, max, .. } = &self.table[at];
        let value = text.trim().parse().map_err(|_| ParameterError::NoNumber {
            name,
            value: text.trim().to_owned(),
        })?;
        if !(min..=max).contains(&value) {
            return Err(ParameterError::OutOfRange {
                name,
                value,
                min,
                max,
            });
        }
        self.values[at] = value;
        Ok(())
    }

    /// Parameters with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Parameter, i64)> + '_ {
        self.table.iter().zip(self.values.iter().copied())
    }

    fn position(&self, name: &str) -> Result<usize, ParameterError> {
        let mut names = self.table.iter().map(|parameter| parameter.name);
        names
            .position(|known| known == name)
            .ok_or_else(|| ParameterError::Unknown {
                name: name.to_owned(),
                known: names_of(self.table),
            })
    }
}

fn names_of(table: &[Parameter]) -> String {
    let names: Vec<&str> = table.iter().map(|parameter| parameter.name).collect();
    names.join(", ")
}
