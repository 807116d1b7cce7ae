package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	inside "heddle/internal/netns"
)

// prefix begins the name of each namespace that the lab makes.
const prefix = "heddle-"

// netnsDir is where `ip netns` looks.
const netnsDir = "/run/netns"

// namespace is a network namespace with a name under /run/netns.
type namespace struct {
	name   string
	handle netns.NsHandle
	link   *netlink.Handle
}

func createNamespace(name string) (*namespace, error) {
	handle := netns.None()
	if err := shareDir(netnsDir); err != nil {
		return nil, err
	}
	err := inside.OnThread(func() (err error) {
		handle, err = netns.NewNamed(name)
		return err
	}, func() error { return inside.Configure(namespaceSysctls...) })
	return newNamespace(name, handle, err)
}

func openNamespace(name string) (*namespace, error) {
	handle, err := netns.GetFromName(name)
	return newNamespace(name, handle, err)
}

// shareDir makes a directory a shared mount of its own, as `ip netns add` does if it is none, and under the same lock. Otherwise ip would do
// so later, and mount the names that are there a second time: these could not be removed any more.
func shareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return &os.PathError{Op: "lock", Path: dir, Err: err}
	}
	share := func() error { return unix.Mount("", dir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if err == unix.EINVAL { // it is no mount
		if err = unix.Mount(dir, dir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return &os.PathError{Op: "mount", Path: dir, Err: err}
	}
	return nil
}

// newNamespace takes over the handle, also if err says that the namespace is incomplete.
func newNamespace(name string, handle netns.NsHandle, err error) (*namespace, error) {
	n := &namespace{name: name, handle: handle}
	if err == nil {
		n.link, err = netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	}
	if err != nil {
		n.close()
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	return n, nil
}

// do runs f on a thread inside the namespace. Goroutines that f starts run outside; sockets stay inside.
func (n *namespace) do(f func() error) error { return inside.In(n.handle, f) }

func (n *namespace) close() {
	if n.link != nil {
		n.link.Close()
	}
	if n.handle.IsOpen() {
		n.handle.Close()
	}
}

// deleteNamespace removes the name. The namespace lives until the last process or descriptor in it is gone.
func deleteNamespace(name string) error {
	file := filepath.Join(netnsDir, name)
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("namespace %s: unmount: %w", name, err)
	}
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}

// A loose reverse path filter lets a multihomed host answer on each network. Duplicate address detection and router
// solicitation only cost time here.
var namespaceSysctls = []inside.Setting{
	{"ipv4/conf/all/rp_filter", "2"},
	{"ipv4/conf/default/rp_filter", "2"},
	{"ipv6/conf/default/accept_dad", "0"},
	{"ipv6/conf/default/accept_ra", "0"},
	{"ipv6/conf/default/keep_addr_on_down", "1"},
	{"ipv6/conf/all/keep_addr_on_down", "1"},
}

var routerSysctls = []inside.Setting{
	{"ipv4/ip_forward", "1"},
	{"ipv6/conf/all/forwarding", "1"},
	// Tests wait for an ICMP unreachable for each refused packet.
	{"ipv4/icmp_ratelimit", "0"},
	{"ipv6/icmp/ratelimit", "0"},
}
