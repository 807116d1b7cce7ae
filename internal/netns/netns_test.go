package netns

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func create(t *testing.T) (namespace netns.NsHandle) {
	t.Helper()
	err := OnThread(func() (err error) {
		namespace, err = netns.New()
		return err
	}, func() error { return nil })
	if errors.Is(err, unix.EPERM) {
		t.Skip("typed skip:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	return namespace
}

func TestInside(t *testing.T) {
	namespace, forwarding := create(t), "/proc/sys/net/ipv4/ip_forward"
	before, err := os.ReadFile(forwarding)
	if err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"0\n": "1", "1\n": "0"}[string(before)]
	if err := In(namespace, func() error { return Configure(Setting{"ipv4/ip_forward", other}) }); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(forwarding); err != nil || string(after) != string(before) {
		t.Errorf("the setting outside is %q now, %v", after, err)
	}
	if err := In(namespace, func() error {
		inside, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
		if err == nil && string(inside) != other+"\n" {
			t.Errorf("the setting inside is %q, want %s", inside, other)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := In(namespace, func() error { return Configure(Setting{"none", "1"}) }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a setting that is not there: %v", err)
	}
}

func TestErrors(t *testing.T) {
	refused := errors.New("refused")
	if err := OnThread(func() error { return refused }, func() error { t.Error("it ran outside"); return nil }); err != refused {
		t.Errorf("%v", err)
	}
	if err := OnThread(func() error { return nil }, func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("a goroutine that ended itself went well")
	}
}

func TestAwaitCarrier(t *testing.T) {
	if err := In(create(t), func() error {
		here := &netlink.Handle{}
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}); err != nil {
			return err
		}
		for _, device := range []string{"a", "b"} {
			l, err := netlink.LinkByName(device)
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err != nil {
				return err
			}
		}
		if err := AwaitCarrier(here, "a"); err != nil {
			return err
		}
		if l, err := netlink.LinkByName("a"); err != nil || l.Attrs().OperState != netlink.OperUp {
			t.Errorf("it is %v, %v", l, err)
		}
		if AwaitCarrier(here, "c") == nil {
			t.Error("a device that is not there has a carrier")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
