package path

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32
}

// shortSend is the maximum size in bytes of a send that Go's scheduler is not told of. A system call known to the scheduler
// wakes its monitor thread in an idle program, which takes longer than sending a lone datagram. A burst may keep the kernel
// busy for long, so the scheduler is told of those.
const shortSend = 2048

// inbox receives with recvmmsg. Received data is valid until the next receive.
type inbox struct {
	raw      syscall.RawConn
	read     func(fd uintptr) bool // allocated once, so that a receive does not allocate
	messages []mmsghdr
	places   []*place
	want     int
	result
}

// result is the result of a system call for several messages: how many it processed, or why none.
type result struct {
	n     int
	errno syscall.Errno
}

// do makes a non-blocking system call for messages. It reports false if the call would block.
func (r *result) do(call func(trap, a1, a2, a3, a4, a5, a6 uintptr) (uintptr, uintptr, syscall.Errno), number, fd uintptr, messages []mmsghdr) bool {
	for {
		n, _, errno := call(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(messages))), uintptr(len(messages)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		}
		r.n, r.errno = int(n), errno
		return true
	}
}

// place is the memory for one message.
type place struct {
	from    sockaddr
	buffer  unix.Iovec
	data    [receiveBuffer]byte
	control [controlLen]byte
}

func newInbox(raw syscall.RawConn) *inbox {
	b := &inbox{raw: raw}
	b.read = b.tryRead
	return b
}

// receive blocks until there are messages, at most want, and returns their number.
func (b *inbox) receive(want int) (int, error) {
	for len(b.places) < want {
		p := &place{}
		p.buffer.Base = &p.data[0]
		p.buffer.SetLen(len(p.data))
		b.places, b.messages = append(b.places, p), append(b.messages, mmsghdr{})
	}
	b.want = want
	if err := b.raw.Read(b.read); err != nil {
		return 0, err
	}
	if b.errno != 0 {
		return 0, b.errno
	}
	return b.n, nil
}

// tryRead receives what is there, or reports that there is nothing. It never blocks, so the scheduler is not told.
func (b *inbox) tryRead(fd uintptr) bool {
	for i, p := range b.places[:b.want] {
		h := &b.messages[i].header
		h.Name, h.Namelen = p.from.pointer(), uint32(len(p.from))
		h.Iov, h.Control = &p.buffer, &p.control[0]
		h.SetIovlen(1)
		h.SetControllen(len(p.control))
	}
	return b.do(unix.RawSyscall6, unix.SYS_RECVMMSG, fd, b.messages[:b.want])
}

// message returns the payload, the sender and the control messages of message i of the last receive.
func (b *inbox) message(i int) (data []byte, from netip.AddrPort, control []byte) {
	m, p := &b.messages[i], b.places[i]
	return p.data[:m.length], p.from.addrPort(), p.control[:min(int(m.header.Controllen), len(p.control))]
}

type outbox struct {
	raw      syscall.RawConn
	write    func(fd uintptr) bool
	messages []mmsghdr
	buffers  []unix.Iovec
	short    bool
	result
}

func newOutbox(raw syscall.RawConn) *outbox {
	b := &outbox{raw: raw}
	b.write = b.tryWrite
	return b
}

// send sends messages to one address, and returns how many the kernel took. If it took none, err says why.
func (b *outbox) send(to *sockaddr, toLen int, messages []outgoing) (int, error) {
	b.buffers, b.messages = b.buffers[:0], b.messages[:0]
	bytes := 0
	for _, m := range messages {
		for _, d := range m.datagrams {
			v := unix.Iovec{Base: unsafe.SliceData(d)}
			v.SetLen(len(d))
			b.buffers = append(b.buffers, v)
			bytes += len(d)
		}
	}
	rest := b.buffers
	for _, m := range messages {
		var h mmsghdr
		h.header.Name, h.header.Namelen = to.pointer(), uint32(toLen)
		h.header.Iov = &rest[0]
		h.header.SetIovlen(len(m.datagrams))
		if len(m.control) > 0 {
			h.header.Control = &m.control[0]
			h.header.SetControllen(len(m.control))
		}
		b.messages = append(b.messages, h)
		rest = rest[len(m.datagrams):]
	}
	b.short = bytes <= shortSend
	err := b.raw.Write(b.write)
	clear(b.messages) // release the caller's datagrams
	clear(b.buffers)
	if err == nil && b.errno != 0 {
		err = b.errno
	}
	if err != nil {
		return 0, err
	}
	return b.n, nil
}

// tryWrite sends, or reports that the socket buffer is full.
func (b *outbox) tryWrite(fd uintptr) bool {
	call := unix.Syscall6
	if b.short {
		call = unix.RawSyscall6
	}
	return b.do(call, unix.SYS_SENDMMSG, fd, b.messages)
}
