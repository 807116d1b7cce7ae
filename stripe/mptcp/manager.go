package mptcp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"heddle/internal/sysctl"
	"heddle/path"
)

// The kernel's path manager speaks generic netlink (linux/mptcp.h; Documentation/netlink/specs/mptcp_pm.yaml).
const (
	familyName    = "mptcp_pm"
	familyVersion = 1

	commandGetLimits     = 6
	commandSubflowCreate = 10

	attrSubflows   = 3 // u32
	attrToken      = 4 // u32
	attrAddr       = 1 // nested
	attrAddrRemote = 6 // nested

	attrFamily = 1 // u16
	attrID     = 2 // u8
	attrAddr4  = 3
	attrAddr6  = 4
	attrPort   = 5 // u16
	attrDevice = 7 // s32
)

// family is the number of the kernel's path manager, or 0 before it is known.
var family atomic.Uint32

// header is a message's generic header (struct genlmsghdr). That of package nl sends two bytes of memory behind it.
type header [nl.SizeofGenlmsg]byte

func (h header) Len() int          { return len(h) }
func (h header) Serialize() []byte { return h[:] }

func ask(command uint8, attrs ...*nl.RtAttr) ([][]byte, error) {
	if family.Load() == 0 {
		found, err := netlink.GenlFamilyGet(familyName)
		if err != nil {
			return nil, err
		}
		family.Store(uint32(found.ID))
	}
	request := nl.NewNetlinkRequest(int(family.Load()), unix.NLM_F_ACK)
	request.AddData(header{command, familyVersion})
	for _, a := range attrs {
		request.AddData(a)
	}
	return request.Execute(unix.NETLINK_GENERIC, 0)
}

// create makes the kernel add a subflow. id is unique for the local address within the connection; the first subflow has 0.
// device is the index of the outgoing interface, or 0. A nil error only means that the kernel tries.
func create(token uint32, id uint8, from netip.Addr, device int, to netip.AddrPort) error {
	local := end(attrAddr, id, netip.AddrPortFrom(from, 0))
	if device != 0 {
		local.AddRtAttr(attrDevice, nl.Uint32Attr(uint32(device)))
	}
	_, err := ask(commandSubflowCreate, nl.NewRtAttr(attrToken, nl.Uint32Attr(token)), local, end(attrAddrRemote, 0, to))
	return err
}

// end encodes one end of a subflow.
func end(attr int, id uint8, a netip.AddrPort) *nl.RtAttr {
	nested := nl.NewRtAttr(attr|unix.NLA_F_NESTED, nil)
	family, addr := uint16(unix.AF_INET), attrAddr4
	if a.Addr().Is6() {
		family, addr = unix.AF_INET6, attrAddr6
	}
	nested.AddRtAttr(attrFamily, nl.Uint16Attr(family))
	nested.AddRtAttr(addr, a.Addr().AsSlice())
	if attr == attrAddr {
		nested.AddRtAttr(attrID, []byte{id})
	} else {
		nested.AddRtAttr(attrPort, nl.Uint16Attr(a.Port()))
	}
	return nested
}

// limit returns how many subflows besides the first the in-kernel path manager lets a peer add.
func limit() (int, error) {
	answers, err := ask(commandGetLimits)
	if err != nil {
		return 0, err
	}
	for _, answer := range answers {
		attrs, err := nl.ParseRouteAttr(answer[nl.SizeofGenlmsg:])
		if err != nil {
			return 0, err
		}
		for _, a := range attrs {
			if a.Attr.Type == attrSubflows && len(a.Value) >= 4 {
				return int(binary.NativeEndian.Uint32(a.Value)), nil
			}
		}
	}
	return 0, errors.New("the kernel names no limit of subflows")
}

const (
	enabledFile = "/proc/sys/net/mptcp/enabled"
	managerFile = "/proc/sys/net/mptcp/pm_type" // since Linux 5.19: 0 in-kernel path manager, 1 user space
	userSpace   = "1"
)

// supported returns an error if this machine cannot use MPTCP.
func supported() error {
	value, err := sysctl.Get(enabledFile)
	if err != nil {
		return &path.Error{What: "mptcp", Why: "this kernel has none", Err: err, Hint: "use --backend stripe, which needs nothing of the kernel"}
	}
	if value == "0" {
		return &path.Error{What: "mptcp", Why: "it is switched off: net.mptcp.enabled is 0", Hint: "sysctl -w net.mptcp.enabled=1"}
	}
	return nil
}
