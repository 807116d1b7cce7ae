package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"heddle/internal/journal"
)

// segmenter is a pair of devices that splits runs of segments. The first device accepts no runs, so the kernel segments them
// before it, and the program on the second device sees single packets.
type segmenter struct {
	First  string `json:"first"`
	Second string `json:"second"`
}

func (s *segmenter) String() string {
	return fmt.Sprintf("ip link add %s gso_max_segs 1 type veth peer name %s", s.First, s.Second)
}

// segmenterMTU exceeds any path's, so that no datagram is too large for it.
const segmenterMTU = 65535

// Apply makes the pair and brings it up.
func (s *segmenter) Apply() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.TxQLen = s.First, segmenterMTU, 0
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: s.Second, PeerMTU: segmenterMTU}); err != nil {
		return err
	}
	first, err := netlink.LinkByName(s.First)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetGSOMaxSegs(first, 1); err != nil {
		return err
	}
	second, err := netlink.LinkByName(s.Second)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(second), netlink.LinkSetUp(first))
}

func (s *segmenter) Undo() error {
	first, err := netlink.LinkByName(s.First)
	if err == nil {
		err = netlink.LinkDel(first)
	}
	return journal.IgnoreGone(err)
}

// index returns the index of a device of the pair.
func (s *segmenter) index(name string) (int, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}
