package nstest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Frame is one of Ethernet on a [Wire].
type Frame struct {
	FromA bool // the first end sent it
	Bytes []byte

	to *os.File
}

// Arrive delivers a copy of the frame, also long after it was sent. The copy is lost if the far kernel does not take it.
func (f Frame) Arrive() { _, _ = f.to.Write(f.Bytes) }

// ArriveAfter delivers a copy a while later.
func (f Frame) ArriveAfter(d time.Duration) { time.AfterFunc(d, f.Arrive) }

// Wire joins two namespaces by a pair of devices, and calls pass with each frame that one of them sends, at most once at a time. A frame arrives at
// the other end when pass says so, and each time. The kernel sends single segments with whole checksums over such devices.
func Wire(t testing.TB, a, b End, pass func(Frame)) {
	t.Helper()
	ends := []End{a, b}
	var files [2]*os.File
	for i, end := range ends {
		end.In.Do(t, func() (err error) {
			files[i], err = openTAP(end.Device)
			return err
		})
	}
	for _, end := range ends {
		end.In.Do(t, func() error {
			return errors.Join(Address(end.Device, end.Addrs...), awaitAddresses(end.Addrs))
		})
	}
	var readers sync.WaitGroup
	var one sync.Mutex
	for i, from := range files {
		readers.Go(func() {
			for buffer := make([]byte, 1<<16); ; {
				n, err := from.Read(buffer)
				if err != nil {
					return
				}
				one.Lock()
				pass(Frame{i == 0, append([]byte(nil), buffer[:n]...), files[1-i]})
				one.Unlock()
			}
		})
	}
	t.Cleanup(func() {
		for _, f := range files {
			f.Close()
		}
		readers.Wait()
	})
}

// openTAP makes a device of Ethernet in the namespace of the calling thread. It lasts until the file is closed.
func openTAP(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make TAP device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
