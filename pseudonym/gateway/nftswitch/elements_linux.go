package nftswitch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// changes are changes of sets that the kernel makes at once, and questions about them. The library takes twice as long for them, with two answers and four calls
// to read these. A gateway waits for one such change for each connection.
type changes struct {
	socket int
	number uint32 // of the last message
	b      []byte // messages
	answer []byte
}

func newChanges() (*changes, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(os.NewSyscallError("connect", err), unix.Close(socket))
	}
	return &changes{socket: socket, answer: make([]byte, mostAnswer)}, nil
}

// mostAnswer is as long as the kernel's longest answer, a part of a set (NLMSG_GOODSIZE and netlink_dump of Linux).
const mostAnswer = 32 << 10

func (c *changes) close() error { return unix.Close(c.socket) }

// The header of a netlink message: size, type, flags, number, port (linux/netlink.h).
const (
	headerBytes = 16
	attributeAt = 4 // bytes of an attribute's header: size and type
	subsystem   = unix.NFNL_SUBSYS_NFTABLES
)

// begin begins a message, and returns where.
func (c *changes) begin(kind, flags uint16, family uint8, resource uint16) (at int) {
	c.number++
	at = len(c.b)
	c.b = binary.NativeEndian.AppendUint32(c.b, 0) // its size; see end
	c.b = binary.NativeEndian.AppendUint16(c.b, kind)
	c.b = binary.NativeEndian.AppendUint16(c.b, flags|unix.NLM_F_REQUEST)
	c.b = binary.NativeEndian.AppendUint32(c.b, c.number)
	c.b = binary.NativeEndian.AppendUint32(c.b, 0)
	c.b = append(c.b, family, unix.NFNETLINK_V0)
	c.b = binary.BigEndian.AppendUint16(c.b, resource)
	return at
}

// end ends a message.
func (c *changes) end(at int) { binary.NativeEndian.PutUint32(c.b[at:], uint32(len(c.b)-at)) }

// nest begins an attribute that holds others, and returns where.
func (c *changes) nest(kind uint16) (at int) {
	at = len(c.b)
	c.b = binary.NativeEndian.AppendUint16(c.b, 0) // its size; see unnest
	c.b = binary.NativeEndian.AppendUint16(c.b, kind|unix.NLA_F_NESTED)
	return at
}

func (c *changes) unnest(at int) { binary.NativeEndian.PutUint16(c.b[at:], uint16(len(c.b)-at)) }

// attribute adds an attribute.
func (c *changes) attribute(kind uint16, value ...byte) {
	c.b = binary.NativeEndian.AppendUint16(c.b, uint16(attributeAt+len(value)))
	c.b = binary.NativeEndian.AppendUint16(c.b, kind)
	c.b = append(c.b, value...)
	for len(c.b)%unix.NLA_ALIGNTO != 0 {
		c.b = append(c.b, 0)
	}
}

// data adds an attribute with a key or what a map has for it.
func (c *changes) data(kind uint16, value []byte) {
	at := c.nest(kind)
	c.attribute(unix.NFTA_DATA_VALUE, value...)
	c.unnest(at)
}

// set adds a message about a set, and about an element of it if there is a key.
func (c *changes) set(kind, flags uint16, set *nftables.Set, key []byte, more func()) {
	message := c.begin(subsystem<<8|kind, flags, uint8(set.Table.Family), 0)
	c.attribute(unix.NFTA_SET_ELEM_LIST_TABLE, append([]byte(set.Table.Name), 0)...)
	c.attribute(unix.NFTA_SET_ELEM_LIST_SET, append([]byte(set.Name), 0)...)
	if key != nil {
		elements := c.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		element := c.nest(unix.NFTA_LIST_ELEM)
		c.data(unix.NFTA_SET_ELEM_KEY, key)
		if more != nil {
			more()
		}
		c.unnest(element)
		c.unnest(elements)
	}
	c.end(message)
}

// add adds an element to a map. The kernel answers the last one.
func (c *changes) add(set *nftables.Set, key, value []byte, lasting time.Duration, last bool) {
	flags := uint16(unix.NLM_F_CREATE)
	if last {
		flags |= unix.NLM_F_ACK
	}
	c.set(unix.NFT_MSG_NEWSETELEM, flags, set, key, func() {
		c.data(unix.NFTA_SET_ELEM_DATA, value)
		c.attribute(unix.NFTA_SET_ELEM_TIMEOUT, binary.BigEndian.AppendUint64(nil, uint64(lasting.Milliseconds()))...)
	})
}

// remove removes an element, without which the changes fail (ENOENT).
func (c *changes) remove(set *nftables.Set, key []byte) {
	c.set(unix.NFT_MSG_DELSETELEM, 0, set, key, nil)
}

// commit makes all changes that fill adds, or none.
func (c *changes) commit(fill func()) error {
	c.b = c.b[:0]
	first := c.number
	c.end(c.begin(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, subsystem))
	fill()
	last := c.number
	c.end(c.begin(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, subsystem))
	if _, err := unix.Write(c.socket, c.b); err != nil {
		return os.NewSyscallError("write", err)
	}
	// The kernel has made the changes, and its answers are there: errors in the order of the messages, and one to the last message. Behind an
	// error there may be more, which the next commit skips.
	for {
		n, _, err := unix.Recvfrom(c.socket, c.answer, unix.MSG_DONTWAIT)
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		if n < headerBytes+4 || binary.NativeEndian.Uint16(c.answer[4:]) != unix.NLMSG_ERROR {
			return fmt.Errorf("nftables answers with %d bytes that are none of its own", n)
		}
		answered := binary.NativeEndian.Uint32(c.answer[8:])
		if int32(answered-first) <= 0 {
			continue
		}
		if number := int32(binary.NativeEndian.Uint32(c.answer[headerBytes:])); number != 0 {
			return unix.Errno(-number)
		}
		if answered == last {
			return nil
		}
	}
}
