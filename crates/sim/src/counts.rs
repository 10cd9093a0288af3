//! Structures of counts.

/// Declares a structure of counts, with `add`.
macro_rules! counts {
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[$about_field:meta])* pub $field:ident: u64,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$about_field])* pub $field: u64,)*
        }

        impl $name {
            pub fn add(&mut self, other: $name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}
pub(crate) use counts;
