//! A running mechanism's state: whoever connects to its socket gets it as JSON.

use crate::fail::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long whoever asks may take to read: who does not must not hold the mechanism up.
const READING: Duration = Duration::from_secs(1);

/// The socket's owner's end, for root only.
pub fn listen(socket: &Path) -> io::Result<UnixListener> {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers everybody who has connected.
pub fn answer<T: Serialize>(listener: &UnixListener, state: impl Fn() -> T) {
    while let Ok((mut client, _)) = listener.accept() {
        let _ = client.set_write_timeout(Some(READING));
        if let Ok(text) = serde_json::to_vec(&state()) {
            let _ = client.write_all(&text);
        }
        kilter_kernel::forget_heap();
    }
}

/// The state of the mechanism behind a socket; none if nothing of ours listens.
pub fn ask<T: DeserializeOwned>(socket: &Path) -> Result<Option<T>, Failure> {
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(
                Failure::new(format!("{}: only root may ask", socket.display()))
                    .hint(format!("sudo {}", crate::machine::command_line())),
            );
        }
        Err(_) => return Ok(None),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        // It ended before it came to answer.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        read => read?,
    };
    match serde_json::from_slice(&text) {
        Ok(state) => Ok(Some(state)),
        // It ended while it was asked.
        Err(_) if text.is_empty() => Ok(None),
        Err(error) => Err(Failure::new(format!("{}: {error}", socket.display()))),
    }
}
