package nftswitch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// element is one of a set.
type element struct {
	key, value []byte        // value is what a map has for the key
	expires    time.Duration // without packets
}

// get returns the element of a key. It reports false if there is none.
func (c *changes) get(set *nftables.Set, key []byte) (e element, has bool, err error) {
	err = c.ask(unix.NLM_F_ACK, set, key, func(one element) error {
		e, has = one, true
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return e, has, err
}

// each calls f for each element of a set. If others come and go meanwhile, it may leave some out. The library would return all at once, of which there can be
// a million.
func (c *changes) each(set *nftables.Set, f func(element) error) error {
	return c.ask(unix.NLM_F_DUMP, set, nil, f)
}

// ask calls f for each element in the kernel's answers. After an error of f the socket is out of step.
func (c *changes) ask(flags uint16, set *nftables.Set, key []byte, f func(element) error) error {
	c.b = c.b[:0]
	c.set(unix.NFT_MSG_GETSETELEM, flags, set, key, nil)
	if _, err := unix.Write(c.socket, c.b); err != nil {
		return os.NewSyscallError("write", err)
	}
	for asked := c.number; ; {
		n, _, err := unix.Recvfrom(c.socket, c.answer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		if n > len(c.answer) {
			return fmt.Errorf("nftables answers with %d bytes at once", n)
		}
		for b := c.answer[:n]; len(b) > 0; {
			size := uint32(len(b))
			if len(b) >= headerBytes {
				size = binary.NativeEndian.Uint32(b)
			}
			if size < headerBytes+4 || size > uint32(len(b)) {
				return fmt.Errorf("nftables answers with a message of %d bytes", size)
			}
			message := b[:size]
			b = b[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), uint32(len(b))):]
			if binary.NativeEndian.Uint32(message[8:]) != asked { // an error's of before
				continue
			}
			switch kind := binary.NativeEndian.Uint16(message[4:]); kind {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if number := int32(binary.NativeEndian.Uint32(message[headerBytes:])); number != 0 {
					return unix.Errno(-number)
				}
				return nil
			default:
				if err := decode(message[headerBytes+4:], f); err != nil {
					return err
				}
			}
		}
	}
}

// decode calls f for each element in the attributes of a message.
func decode(b []byte, f func(element) error) error {
	list, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	for list.Next() {
		if list.Type() != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			continue
		}
		list.Nested(func(all *netlink.AttributeDecoder) error {
			for all.Next() {
				var e element
				all.Nested(e.decode)
				if err := errors.Join(all.Err(), f(e)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return list.Err()
}

func (e *element) decode(of *netlink.AttributeDecoder) error {
	of.ByteOrder = binary.BigEndian
	value := func(to *[]byte) func(*netlink.AttributeDecoder) error {
		return func(d *netlink.AttributeDecoder) error {
			for d.Next() {
				*to = d.Bytes()
			}
			return nil
		}
	}
	for of.Next() {
		switch of.Type() {
		case unix.NFTA_SET_ELEM_KEY:
			of.Nested(value(&e.key))
		case unix.NFTA_SET_ELEM_DATA:
			of.Nested(value(&e.value))
		case unix.NFTA_SET_ELEM_EXPIRATION:
			e.expires = time.Duration(of.Uint64()) * time.Millisecond
		}
	}
	return nil
}
