//! A running mechanism's state: whoever connects to its socket gets it as JSON.

use crate::fail::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long whoever asks may read nothing: who does not must not hold the mechanism up.
const READING: Duration = Duration::from_secs(1);

/// What is written at once, so that no answer has to be in memory as a whole.
const CHUNK: usize = 64 << 10;

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
    while let Ok((client, _)) = listener.accept() {
        let _ = client.set_write_timeout(Some(READING));
        let mut client = BufWriter::with_capacity(CHUNK, client);
        match serde_json::to_writer(&mut client, &state()) {
            Ok(()) => drop(client.flush()),
            // What is left would only wait once more.
            Err(_) => drop(client.into_parts()),
        }
        kilter_kernel::forget_heap();
        kilter_kernel::forget_code();
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
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let waited = PATIENCE.as_secs();
            return Err(failure(socket, format!("no answer within {waited} s")));
        }
        read => read?,
    };
    match serde_json::from_slice(&text) {
        Ok(state) => Ok(Some(state)),
        // It ended while it was asked.
        Err(_) if text.is_empty() => Ok(None),
        Err(error) if error.is_eof() => {
            let size = text.len();
            Err(failure(
                socket,
                format!("the answer was cut off after {size} bytes"),
            ))
        }
        Err(error) => Err(Failure::new(format!("{}: {error}", socket.display()))),
    }
}

/// Of an answer that another try may bring.
fn failure(socket: &Path, what: String) -> Failure {
    Failure::new(format!("{}: {what}", socket.display())).hint(crate::machine::command_line())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// More than any socket holds unread.
    fn large() -> Vec<u64> {
        (0..1_000_000).collect()
    }

    fn connected() -> (tempfile::TempDir, UnixListener, UnixStream) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = listen(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        (dir, listener, client)
    }

    fn all_of(mut client: UnixStream) -> serde_json::Result<Vec<u64>> {
        let mut text = Vec::new();
        client.read_to_end(&mut text).unwrap();
        serde_json::from_slice(&text)
    }

    #[test]
    fn who_reads_slowly_gets_all_of_it() {
        let (_dir, listener, client) = connected();
        let reader = thread::spawn(move || {
            thread::sleep(READING / 4);
            all_of(client)
        });
        answer(&listener, large);
        assert_eq!(reader.join().unwrap().unwrap(), large());
    }

    #[test]
    fn who_does_not_read_is_left() {
        let (_dir, listener, client) = connected();
        answer(&listener, large);
        assert!(all_of(client).unwrap_err().is_eof());
    }

    #[test]
    fn an_answer_that_is_cut_off_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(b"[1, 2").unwrap();
        });
        let failure = ask::<Vec<u64>>(&path).unwrap_err();
        server.join().unwrap();
        assert!(failure.message().contains("cut off after 5 bytes"));
    }
}
