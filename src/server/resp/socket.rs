//! The Unix socket of the RESP server.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

use lapsed::config::RespSocket;

/// A Unix socket that listens. Its file is removed on drop.
pub struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

impl Socket {
    /// Listens. The file of a program that has died is replaced.
    ///
    /// # Errors
    /// If a program answers there, if the file is not a socket, or it cannot be created.
    pub fn open(config: &RespSocket, backlog: u32) -> io::Result<Self> {
        let path = &config.path;
        remove_dead(path)?;
        let socket = UnixSocket::new_stream()?;
        socket.bind(path)?;
        let file = SocketFile::of(path)?;
        // Nobody can connect before `listen`.
        fs::set_permissions(path, Permissions::from_mode(config.mode))?;
        Ok(Self {
            listener: socket.listen(backlog)?,
            file,
        })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The next client.
    ///
    /// # Errors
    /// Such as too many open files.
    ///
    /// # Cancel safety
    /// No client is lost.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

/// The file of a socket. Removed on drop, unless another program has put its own there.
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            inode: inode(path)?,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Removes the socket of a program that has died.
fn remove_dead(path: &Path) -> io::Result<()> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file.file_type().is_socket() {
        let text = "there is a file that is not a socket, and is left as it is";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    // It does not wait for a program whose queue is full.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Ok(()) | Err(Errno::AGAIN) => {
            let text = "another program answers there, such as another daemon";
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
        Err(error) => Err(error.into()),
    }
}
