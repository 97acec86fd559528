//! The kernel's process events (`NETLINK_CONNECTOR`, linux/cn_proc.h): who has changed their uid.
//!
//! Since Linux 6.6 the kernel sends only the kinds of event that were asked for; an older one
//! ignores a request that names kinds, and sends all of them to whoever sends a plain request. Lost
//! events are told with `ENOBUFS`; the numbers of messages tell nothing under a filter.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recvfrom, sendto,
    socket_with, sockopt,
};
use std::io;

/// `CN_IDX_PROC` and `CN_VAL_PROC`: the connector of process events.
const CN_PROC: u32 = 1;
/// `PROC_CN_MCAST_LISTEN`.
const LISTEN: u32 = 1;
/// `PROC_EVENT_UID`: a thread has changed one of its uids.
const EVENT_UID: u32 = 4;
/// `NLMSG_DONE`.
const NLMSG_DONE: u16 = 3;
/// Bytes of `struct nlmsghdr` and of `struct cn_msg`.
const HEADERS: usize = 16 + 20;
/// Room for events: 256 of them fit into the usual 208 KiB, some 10,000 into this.
const BUFFER_BYTES: usize = 8 << 20;

/// A change of uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UidEvent {
    /// The thread.
    pub tid: i32,
    /// Its process.
    pub pid: i32,
    /// Its real uid now.
    pub real_uid: u32,
}

/// What a receive gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A change of uid.
    Uid(UidEvent),
    /// Something else: a kind that was not asked for, or an answer.
    Other,
    /// Events were lost, nobody knows whose.
    Lost,
    /// Nothing more is there now.
    Nothing,
}

/// A subscription to changes of uid.
#[derive(Debug)]
pub struct Connector {
    socket: OwnedFd,
}

impl Connector {
    /// Opens the socket; nothing comes before [`Connector::listen`].
    ///
    /// # Errors
    /// The kernel has no connector, or the right is missing (`CAP_NET_ADMIN`).
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(netlink::CONNECTOR),
        )?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, CN_PROC))?;
        // Without it a burst is lost sooner, and told.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
        Ok(Connector { socket })
    }

    /// Asks for events: only changes of uid where `masked`, which kernels before 6.6 ignore.
    ///
    /// # Errors
    /// What `sendto(2)` says.
    pub fn listen(&self, masked: bool) -> io::Result<()> {
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &request(masked), SendFlags::empty(), &kernel)?;
        Ok(())
    }

    /// The next message; never waits.
    ///
    /// # Errors
    /// What `recvfrom(2)` says, lost events aside.
    pub fn receive(&self) -> io::Result<Received> {
        let mut buffer = [0_u8; 256];
        loop {
            let (length, from) = match recvfrom(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _, from)) => (length, from),
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::NOBUFS) => return Ok(Received::Lost),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            // Anybody may send to a netlink socket; the kernel's port is 0.
            let from = from.and_then(|from| netlink::SocketAddrNetlink::try_from(from).ok());
            if from.is_some_and(|from| from.pid() == 0) {
                let event = parse(&buffer[..length.min(buffer.len())]);
                return Ok(event.map_or(Received::Other, Received::Uid));
            }
        }
    }

    /// Waits until a message may be there.
    pub fn wait(&self, timeout: Timespec) {
        let _ = poll(
            &mut [PollFd::new(&self.socket, PollFlags::IN)],
            Some(&timeout),
        );
    }
}

impl AsFd for Connector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `nlmsghdr`, `cn_msg`, then `proc_input` or a bare operation.
fn request(masked: bool) -> Vec<u8> {
    let mut data = LISTEN.to_ne_bytes().to_vec();
    if masked {
        data.extend(EVENT_UID.to_ne_bytes());
    }
    let length = (HEADERS + data.len()) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(NLMSG_DONE.to_ne_bytes());
    bytes.extend([0; 2 + 4 + 4]); // flags, sequence, port
    bytes.extend(CN_PROC.to_ne_bytes());
    bytes.extend(CN_PROC.to_ne_bytes());
    bytes.extend([0; 4 + 4]); // sequence, acknowledgement
    bytes.extend((data.len() as u16).to_ne_bytes());
    bytes.extend([0; 2]); // flags
    bytes.extend(data);
    bytes
}

/// A change of uid out of a message: `struct proc_event` after the headers.
fn parse(message: &[u8]) -> Option<UidEvent> {
    let word = |at: usize| {
        let bytes = message.get(HEADERS + at..HEADERS + at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let index = message.get(16..24)?;
    let from_proc = index == [CN_PROC.to_ne_bytes(), CN_PROC.to_ne_bytes()].concat();
    // what, cpu, timestamp (8 bytes), then thread, process, real and effective uid.
    if !from_proc || word(0)? != EVENT_UID {
        return None;
    }
    Some(UidEvent {
        tid: word(16)? as i32,
        pid: word(20)? as i32,
        real_uid: word(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(what: u32, words: [u32; 4]) -> Vec<u8> {
        let mut bytes = request(true)[..HEADERS].to_vec();
        bytes.extend(what.to_ne_bytes());
        bytes.extend([0; 4 + 8]);
        words
            .into_iter()
            .for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn a_request_is_as_the_kernel_wants_it() {
        assert_eq!(request(false).len(), 40);
        let masked = request(true);
        assert_eq!(masked.len(), 44);
        assert_eq!(masked[..4], 44_u32.to_ne_bytes());
        assert_eq!(masked[32..34], 8_u16.to_ne_bytes());
    }

    #[test]
    fn only_changes_of_uid_are_events() {
        let event = UidEvent {
            tid: 7,
            pid: 6,
            real_uid: 1000,
        };
        assert_eq!(parse(&message(4, [7, 6, 1000, 0])), Some(event));
        assert_eq!(parse(&message(1, [7, 6, 1000, 0])), None);
        let mut foreign = message(4, [7, 6, 1000, 0]);
        foreign[16] ^= 1;
        assert_eq!(parse(&foreign), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_not(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            let _ = parse(&bytes);
        }
    }
}
