//! A host's mount as a line of fstab(5): the store, and arguments among the options.

use super::{HostMountArguments, Where};
use crate::error::CliError;
use std::path::{Path, PathBuf};

/// Takes `journal=`, `name=`, `file_system=` and `keyring=` out of the options. (`user=` is one of
/// mount(8).)
pub fn arguments(
    source: &Path,
    directory: PathBuf,
    words: Vec<String>,
) -> Result<HostMountArguments, CliError> {
    let store = source.display().to_string();
    let (mut journal, mut options) = (None, Vec::new());
    let (mut user, mut file_system, mut keyring) = (None, None, None);
    for word in words {
        match word.split_once('=') {
            Some(("journal", file)) => journal = Some(file.into()),
            Some(("name", name)) => user = Some(name.into()),
            Some(("file_system", name)) => file_system = Some(name.into()),
            Some(("keyring", file)) => keyring = Some(file.into()),
            _ => options.push(word),
        }
    }
    let journal = journal.ok_or_else(|| {
        CliError::new(format!("{store}: no journal"))
            .with_remedy("Name a file or device of this host: -o journal=/var/lib/okeanos.journal")
    })?;
    Ok(HostMountArguments {
        place: Where { store, user, file_system, keyring, journal },
        format: false,
        force: false,
        foreground: false,
        options,
        directory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &str) -> Result<HostMountArguments, CliError> {
        arguments(
            Path::new("ceph:/etc/ceph/ceph.conf:/mail"),
            "/mnt".into(),
            options.split(',').map(Into::into).collect(),
        )
    }

    #[test]
    fn a_line_has_the_arguments_of_the_command() {
        let line = "rw,_netdev,nofail,x-systemd.requires=a.mount,journal=/j,name=mail,\
                    file_system=fs,keyring=/k,allow_other,destage=5s";
        let arguments = parsed(line).unwrap();
        let place = &arguments.place;
        assert_eq!(place.store, "ceph:/etc/ceph/ceph.conf:/mail");
        assert_eq!(place.journal, Path::new("/j"));
        assert_eq!(
            (place.user.as_deref(), place.file_system.as_deref()),
            (Some("mail"), Some("fs"))
        );
        assert_eq!(place.keyring.as_deref(), Some(Path::new("/k")));
        assert_eq!(
            arguments.options,
            ["rw", "_netdev", "nofail", "x-systemd.requires=a.mount", "allow_other", "destage=5s"]
        );
        assert!(crate::host::options::HostSettings::parse(&arguments.options).is_ok());
    }

    #[test]
    fn a_line_without_a_journal_is_refused() {
        let error = parsed("allow_other").err().unwrap();
        assert!(error.to_string().contains("no journal"), "{error}");
    }
}
