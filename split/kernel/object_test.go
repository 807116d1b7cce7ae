package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"heddle/schedule"
	"heddle/split/backend"
)

// objects are compiled, one for each order of bytes.
var objects = map[string]binary.ByteOrder{"split_bpfel.o": binary.LittleEndian, "split_bpfeb.o": binary.BigEndian}

// compiler is the version of clang that `make bpf` was last run with. Others may give other instructions.
const compiler = "14.0.6"

func TestObjectsAreWhatTheSourceGives(t *testing.T) {
	for _, tool := range []string{"clang", "llvm-strip", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	if out, err := exec.Command("clang", "--version").Output(); err != nil || !strings.Contains(string(out), "version "+compiler) {
		t.Skipf("clang is not %s: %s (%v)", compiler, out, err)
	}
	source, err := os.ReadFile("generate.go")
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(source), "//go:generate ")
	dir := t.TempDir()
	generate := exec.Command("sh", "-c", strings.Replace(command, "go tool bpf2go", "go tool bpf2go -output-dir '"+dir+"'", 1))
	generate.Env = append(os.Environ(), "GOPACKAGE=kernel")
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(made) != 2*len(objects) {
		t.Fatalf("it made %q, %v", made, err)
	}
	for _, file := range made {
		now, err1 := os.ReadFile(file)
		before, err2 := os.ReadFile(filepath.Base(file))
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(now, before) {
			t.Errorf("%s is not what split.c gives: run `make bpf` (%v)", filepath.Base(file), err)
		}
	}
}

func TestObjectsOfBothByteOrders(t *testing.T) {
	for file, order := range objects {
		object, err := ebpf.LoadCollectionSpec(file)
		if err != nil {
			t.Fatal(err)
		}
		if object.ByteOrder != order || len(object.Programs) != 4 || object.Programs[splitProgHeddleOut6] == nil {
			t.Errorf("%s: %v, programs %v", file, object.ByteOrder, object.Programs)
		}
	}
}

// The kernel takes the programs with all that they may be loaded for.
func TestProgramsLoad(t *testing.T) {
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		for _, every := range []schedule.Every{{}, {Packets: 3}, {Period: time.Millisecond}} {
			m, err := newMaps(maxMembers)
			if errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			s := session{server: netip.AddrPortFrom(netip.MustParseAddr(address), 53), every: every, mark: drawMark(), maps: m}
			for _, link := range []int{0, backend.EthernetHeader} {
				for _, load := range []func() (*ebpf.Program, error){
					func() (*ebpf.Program, error) { return s.inbound(link) },
					func() (*ebpf.Program, error) { return s.outbound(link, 0) },
					func() (*ebpf.Program, error) { return s.outbound(link, 1) },
				} {
					p, err := load()
					if err != nil {
						t.Fatalf("%s, every %v, header of %d: %+v", address, every, link, err)
					}
					p.Close()
				}
			}
			m.close()
		}
	}
}
