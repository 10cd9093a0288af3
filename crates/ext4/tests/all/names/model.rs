//! Model of a tree of names: a few maps, and the rules of POSIX.

use crate::names::support::{ROOT, list};
use ext4::{FileType, RenameMode, Volume};
use std::collections::BTreeMap;
use std::rc::Rc;
use units::InodeNumber;
use units::Refusal;

pub type NodeId = usize;
/// Directories that several models share; their nodes come first in each.
pub const SHARED: usize = 3;

#[derive(Clone, Debug)]
pub enum What {
    File { links: u32 },
    Link { target: String },
    Directory { parent: NodeId, children: BTreeMap<String, NodeId> },
}

#[derive(Clone, Debug)]
pub struct Node {
    pub inode: InodeNumber,
    pub what: What,
}

/// The names of one task. Others have names in the shared directories, too, but not the same ones.
pub struct Model {
    pub nodes: BTreeMap<NodeId, Node>,
    next: NodeId,
}

/// Path to (type, inode, links, target).
pub type TreeState = BTreeMap<String, (char, u32, u32, String)>;

impl Model {
    pub fn new(shared: [InodeNumber; SHARED]) -> Model {
        let directory = |parent| What::Directory { parent, children: BTreeMap::new() };
        let node = |(id, inode)| (id, Node { inode, what: directory(id) });
        Model { nodes: shared.into_iter().enumerate().map(node).collect(), next: SHARED }
    }

    pub fn directories(&self) -> Vec<NodeId> {
        let is_directory = |(_, node): &(_, &Node)| matches!(node.what, What::Directory { .. });
        self.nodes.iter().filter(is_directory).map(|(id, _)| *id).collect()
    }
    pub fn files(&self) -> Vec<NodeId> {
        let is_file = |(_, node): &(_, &Node)| matches!(node.what, What::File { .. });
        self.nodes.iter().filter(is_file).map(|(id, _)| *id).collect()
    }
    pub fn inode(&self, id: NodeId) -> InodeNumber {
        self.nodes[&id].inode
    }
    pub fn find(&self, directory: NodeId, name: &str) -> Option<NodeId> {
        self.children(directory).get(name).copied()
    }
    pub fn children(&self, directory: NodeId) -> &BTreeMap<String, NodeId> {
        match &self.nodes[&directory].what {
            What::Directory { children, .. } => children,
            _ => panic!("no directory"),
        }
    }
    fn children_mut(&mut self, directory: NodeId) -> &mut BTreeMap<String, NodeId> {
        match &mut self.nodes.get_mut(&directory).unwrap().what {
            What::Directory { children, .. } => children,
            _ => panic!("no directory"),
        }
    }
    fn is_directory(&self, id: NodeId) -> bool {
        matches!(self.nodes[&id].what, What::Directory { .. })
    }
    fn is_above(&self, above: NodeId, mut below: NodeId) -> bool {
        loop {
            if above == below {
                return true;
            }
            match self.nodes[&below].what {
                What::Directory { parent, .. } if parent != below => below = parent,
                _ => return false,
            }
        }
    }

    /// The refusal, or `None` when something can be made there.
    pub fn refuses_make(&self, directory: NodeId, name: &str) -> Option<Refusal> {
        self.find(directory, name).map(|_| Refusal::Exists)
    }
    pub fn make(&mut self, directory: NodeId, name: &str, inode: InodeNumber, what: What) {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Node { inode, what });
        self.children_mut(directory).insert(name.into(), id);
    }
    pub fn link(&mut self, directory: NodeId, name: &str, file: NodeId) {
        self.children_mut(directory).insert(name.into(), file);
        match &mut self.nodes.get_mut(&file).unwrap().what {
            What::File { links } => *links += 1,
            _ => panic!("no file"),
        }
    }

    pub fn refuses_remove(
        &self,
        directory: NodeId,
        name: &str,
        as_directory: bool,
    ) -> Option<Refusal> {
        let Some(id) = self.find(directory, name) else { return Some(Refusal::NotFound) };
        self.refuses_loss(id, as_directory)
    }
    fn refuses_loss(&self, id: NodeId, as_directory: bool) -> Option<Refusal> {
        match (as_directory, self.is_directory(id)) {
            (true, false) => Some(Refusal::NotDirectory),
            (false, true) => Some(Refusal::IsDirectory),
            (true, true) if !self.children(id).is_empty() => Some(Refusal::NotEmpty),
            _ => None,
        }
    }
    pub fn remove(&mut self, directory: NodeId, name: &str) {
        let id = self.children_mut(directory).remove(name).unwrap();
        if let What::File { links } = &mut self.nodes.get_mut(&id).unwrap().what {
            *links -= 1;
            if *links > 0 {
                return;
            }
        }
        self.nodes.remove(&id);
    }

    pub fn refuses_rename(
        &self,
        (from, old): (NodeId, &str),
        (to, new): (NodeId, &str),
        mode: RenameMode,
    ) -> Option<Refusal> {
        let Some(source) = self.find(from, old) else { return Some(Refusal::NotFound) };
        let target = self.find(to, new);
        let exchange = mode == RenameMode::Exchange;
        match target {
            Some(_) if mode == RenameMode::NoReplace => return Some(Refusal::Exists),
            None if exchange => return Some(Refusal::NotFound),
            Some(target) if target == source => return None,
            _ => {}
        }
        if self.is_above(source, to) {
            return Some(Refusal::Invalid);
        }
        let target = target?;
        if self.is_above(target, from) {
            return Some(if exchange { Refusal::Invalid } else { Refusal::NotEmpty });
        }
        if exchange { None } else { self.refuses_loss(target, self.is_directory(source)) }
    }
    pub fn rename(
        &mut self,
        (from, old): (NodeId, &str),
        (to, new): (NodeId, &str),
        mode: RenameMode,
    ) {
        let (source, target) = (self.find(from, old).unwrap(), self.find(to, new));
        if target == Some(source) {
            return;
        }
        match target {
            Some(target) if mode == RenameMode::Exchange => {
                self.children_mut(from).insert(old.into(), target);
                self.adopt(target, from);
            }
            target => {
                if target.is_some() {
                    self.remove(to, new);
                }
                self.children_mut(from).remove(old);
            }
        }
        self.children_mut(to).insert(new.into(), source);
        self.adopt(source, to);
    }
    fn adopt(&mut self, child: NodeId, by: NodeId) {
        if let What::Directory { parent, .. } = &mut self.nodes.get_mut(&child).unwrap().what {
            *parent = by;
        }
    }

    /// Records everything below a directory, under the path `at`.
    pub fn record(&self, directory: NodeId, at: &str, state: &mut TreeState) {
        for (name, id) in self.children(directory) {
            let path = format!("{at}/{name}");
            let Node { inode, what } = &self.nodes[id];
            let inode = inode.get();
            let entry = match what {
                What::File { links } => ('f', inode, *links, String::new()),
                What::Link { target } => ('l', inode, 1, target.clone()),
                What::Directory { children, .. } => {
                    let below =
                        children.values().filter(|child| self.is_directory(**child)).count();
                    ('d', inode, 2 + below as u32, String::new())
                }
            };
            state.insert(path.clone(), entry);
            if self.is_directory(*id) {
                self.record(*id, &path, state);
            }
        }
    }
}

/// The tree of a volume.
pub async fn walk(volume: &Rc<Volume>) -> TreeState {
    let mut state = TreeState::new();
    let mut waiting = vec![(String::new(), ROOT)];
    while let Some((at, number)) = waiting.pop() {
        let directory = volume.inode(number).await.unwrap();
        for entry in list(volume, &directory, 64).await {
            if entry.name == b"." || entry.name == b".." || entry.name == b"lost+found" {
                continue;
            }
            let path = format!("{at}/{}", String::from_utf8(entry.name.clone()).unwrap());
            let inode = volume.lookup(&directory, &entry.name).await.unwrap();
            assert_eq!(inode.number, entry.inode, "{path}");
            let links = inode.fields.borrow().links.into();
            let (kind, target) = if inode.is_directory() {
                waiting.push((path.clone(), inode.number));
                ('d', Vec::new())
            } else if inode.is_symlink() {
                ('l', volume.readlink(&inode).await.unwrap())
            } else {
                ('f', Vec::new())
            };
            assert!(
                entry.file_type == FileType::Unknown || matches_type(entry.file_type, kind),
                "{path}"
            );
            state.insert(
                path,
                (kind, inode.number.get(), links, String::from_utf8(target).unwrap()),
            );
        }
    }
    state
}

fn matches_type(file_type: FileType, kind: char) -> bool {
    matches!(
        (file_type, kind),
        (FileType::Directory, 'd') | (FileType::Symlink, 'l') | (FileType::Regular, 'f')
    )
}
