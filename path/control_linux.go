package path

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// segmentControls caches the results of segmentControl: there are few sizes, and each burst needs one.
var segmentControls sync.Map // int -> []byte

// segmentControl returns the control message that makes the kernel cut a buffer into datagrams of size bytes (UDP_SEGMENT).
func segmentControl(size int) []byte {
	if c, ok := segmentControls.Load(size); ok {
		return c.([]byte)
	}
	c := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(c[unix.CmsgLen(0):], uint16(size))
	segmentControls.Store(size, c)
	return c
}

// segmentSize returns the length of the datagrams that the kernel joined (UDP_GRO), or 0 if it joined none.
func segmentSize(control []byte) int {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return 0
		}
		if h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && len(data) >= 4 {
			return int(binary.NativeEndian.Uint32(data))
		}
		control = rest
	}
	return 0
}
