package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"heddle/internal/bpf"
	"heddle/internal/bpf/bpftest"
	"heddle/schedule"
	"heddle/split"
	"heddle/split/backend"
)

func TestObjectsAreWhatTheSourceGives(t *testing.T) { bpftest.Generated(t) }

func TestObjectsOfBothByteOrders(t *testing.T) {
	bpftest.Objects(t, "split", splitProgHeddleOut4, splitProgHeddleOut6, splitProgHeddleIn4, splitProgHeddleIn6)
}

// Numbers that the source repeats.
func TestNumbersOfTheSource(t *testing.T) {
	source, err := os.ReadFile("split.c")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"BURST": fmt.Sprint(backend.BurstLimit), "PAUSE": fmt.Sprintf("%dull", split.PauseLength.Nanoseconds()), "ACKNOWLEDGEMENT": fmt.Sprint(split.MostAcknowledgement),
		"PLAN_SIZE": "(1 << 16)", "MAX_MEMBERS": fmt.Sprint(maxMembers), "ETHERNET_HEADER": fmt.Sprint(bpf.EthernetHeader),
	} {
		if got := regexp.MustCompile(`(?m)^#define ` + name + ` (\S+( << \d+\))?)`).FindSubmatch(source); got == nil || string(got[1]) != want {
			t.Errorf("%s is %s, not %s", name, got, want)
		}
	}
	if planSize != 1<<16 {
		t.Errorf("a plan has %d units", planSize)
	}
}

// The kernel takes the programs with all that they may be loaded for.
func TestProgramsLoad(t *testing.T) {
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		for _, every := range []schedule.Every{{}, {Packets: 3}, {Period: time.Millisecond}} {
			bpftest.FewRights(t, func() error { return loads(netip.AddrPortFrom(netip.MustParseAddr(address), 53), every) })
		}
	}
}

// loads loads the programs of a session.
func loads(server netip.AddrPort, every schedule.Every) error {
	m, err := newMaps(maxMembers)
	if err != nil {
		return err
	}
	defer m.close()
	s := session{server: server, every: every, mark: drawMark(), maps: m}
	for _, link := range []int{0, bpf.EthernetHeader} {
		for _, load := range []func() (*ebpf.Program, error){
			func() (*ebpf.Program, error) { return s.inbound(link) },
			func() (*ebpf.Program, error) { return s.outbound(link, 0) },
			func() (*ebpf.Program, error) { return s.outbound(link, 1) },
		} {
			p, err := load()
			if err != nil {
				return fmt.Errorf("%v, every %v, header of %d: %w", server, every, link, err)
			}
			p.Close()
		}
	}
	return nil
}
