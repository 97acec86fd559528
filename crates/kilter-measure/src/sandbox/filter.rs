//! The filter of system calls: a second wall behind the missing capabilities.
//!
//! It refuses what no tweak script needs and what namespaces do not wall off (other families of
//! sockets, keys, BPF, memory that belongs to no process), and stops every opening for writing until
//! the recorder lets it go on.

use super::confine::own;
use rustix::fd::OwnedFd;
use std::io;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(target_arch = "riscv64")]
const ARCHITECTURE: u32 = 0xC000_00F3;
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
)))]
compile_error!("the filter of system calls knows x86_64, aarch64 and riscv64");

/// System calls that are refused, with EPERM.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_memfd_create,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_mq_open,
    libc::SYS_msgget,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_seccomp,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_shmget,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// The families that a network namespace walls off.
const SOCKETS: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// Bits of an opening that may change a file.
const WRITING: u32 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u32;

/// All kinds of namespaces.
const NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u32
    | 0x80; // CLONE_NEWTIME

/// Where `struct seccomp_data` has the number of the call, the architecture, and the low half of an
/// argument on little-endian machines.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const ASK: u32 = libc::SECCOMP_RET_USER_NOTIF;
const fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// Installs the filter for the calling process and what it starts.
pub(super) fn install() -> io::Result<OwnedFd> {
    let mut filter = program();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its length belong together and outlive the call.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    match i32::try_from(listener) {
        Ok(fd @ 0..) => Ok(own(fd)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn program() -> Vec<libc::sock_filter> {
    let mut program = vec![
        load(ARCHITECTURE_AT),
        if_equal(ARCHITECTURE, 1, 0),
        give(refuse(libc::ENOSYS)),
        load(NUMBER),
    ];
    // Calls of the x32 kind have this bit, and numbers of their own.
    program.extend([if_any(0x4000_0000, 0, 1), give(refuse(libc::ENOSYS))]);
    for &call in REFUSED {
        on(&mut program, call, &[give(refuse(libc::EPERM))]);
    }
    // Its flags lie in memory, where a filter cannot look; C libraries then use `clone`.
    on(
        &mut program,
        libc::SYS_clone3,
        &[give(refuse(libc::ENOSYS))],
    );
    let clone = [
        load(argument(0)),
        if_any(NAMESPACES, 0, 1),
        give(refuse(libc::EPERM)),
        give(ALLOW),
    ];
    on(&mut program, libc::SYS_clone, &clone);
    // Limits of others, the first process among them.
    let limits = [
        load(argument(0)),
        if_equal(0, 1, 0),
        give(refuse(libc::EPERM)),
        give(ALLOW),
    ];
    on(&mut program, libc::SYS_prlimit64, &limits);
    on(&mut program, libc::SYS_socket, &sockets());
    on(&mut program, libc::SYS_openat, &opening(2));
    on(&mut program, libc::SYS_openat2, &[give(ASK)]);
    #[cfg(target_arch = "x86_64")]
    {
        on(&mut program, libc::SYS_open, &opening(1));
        on(&mut program, libc::SYS_creat, &[give(ASK)]);
    }
    program.push(give(ALLOW));
    program
}

fn sockets() -> Vec<libc::sock_filter> {
    let mut lines = vec![load(argument(0))];
    for family in SOCKETS {
        lines.extend([if_equal(family.cast_unsigned(), 0, 1), give(ALLOW)]);
    }
    lines.push(give(refuse(libc::EAFNOSUPPORT)));
    lines
}

fn opening(flags: u32) -> [libc::sock_filter; 4] {
    [
        load(argument(flags)),
        if_any(WRITING, 0, 1),
        give(ASK),
        give(ALLOW),
    ]
}

/// For one call, with its number loaded: these lines, which must all end in an answer.
fn on(program: &mut Vec<libc::sock_filter>, call: libc::c_long, lines: &[libc::sock_filter]) {
    let (number, skip) = (call as u32, lines.len() as u8);
    program.push(if_equal(number, 0, skip));
    program.extend_from_slice(lines);
}

const fn line(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    }
}

const fn load(at: u32) -> libc::sock_filter {
    line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at)
}

const fn if_equal(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value)
}

const fn if_any(bits: u32, yes: u8, no: u8) -> libc::sock_filter {
    line(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, yes, no, bits)
}

const fn give(answer: u32) -> libc::sock_filter {
    line(libc::BPF_RET | libc::BPF_K, 0, 0, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel does, on one call.
    fn answer(number: libc::c_long, arguments: &[u32]) -> u32 {
        let program = program();
        let (mut at, mut word) = (0, 0);
        loop {
            let line = program[at];
            at += 1;
            match u32::from(line.code) {
                code if code == u32::from(load(0).code) => {
                    word = match line.k {
                        NUMBER => number as u32,
                        ARCHITECTURE_AT => ARCHITECTURE,
                        at => arguments.get((at as usize - 16) / 8).copied().unwrap_or(0),
                    };
                }
                code if code == u32::from(give(0).code) => return line.k,
                code => {
                    let yes = match code == u32::from(if_any(0, 0, 0).code) {
                        true => word & line.k != 0,
                        false => word == line.k,
                    };
                    at += usize::from(if yes { line.jt } else { line.jf });
                }
            }
        }
    }

    #[test]
    fn calls_are_told_apart() {
        let writing = (libc::O_WRONLY | libc::O_TRUNC) as u32;
        let refused = refuse(libc::EPERM);
        for (call, arguments, expected) in [
            (libc::SYS_read, vec![], ALLOW),
            (libc::SYS_openat, vec![0, 0, 0], ALLOW),
            (libc::SYS_openat, vec![0, 0, writing], ASK),
            (libc::SYS_openat2, vec![], ASK),
            (libc::SYS_mount, vec![], refused),
            (libc::SYS_vhangup, vec![], refused),
            (libc::SYS_clone, vec![libc::SIGCHLD as u32], ALLOW),
            (libc::SYS_clone, vec![libc::CLONE_NEWUSER as u32], refused),
            (libc::SYS_clone3, vec![], refuse(libc::ENOSYS)),
            (libc::SYS_prlimit64, vec![0], ALLOW),
            (libc::SYS_prlimit64, vec![1], refused),
            (libc::SYS_socket, vec![libc::AF_INET as u32], ALLOW),
            (
                libc::SYS_socket,
                vec![libc::AF_VSOCK as u32],
                refuse(libc::EAFNOSUPPORT),
            ),
            (libc::SYS_read | 0x4000_0000, vec![], refuse(libc::ENOSYS)),
        ] {
            assert_eq!(answer(call, &arguments), expected, "{call} {arguments:?}");
        }
    }
}
