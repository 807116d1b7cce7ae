package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netutil"
	"heddle/observe"
	"heddle/path"
)

const captureBuffer = 64 << 20

// Capture records the packets that cross one device. It splits segmentation-offload super-packets, so that it counts
// what the wire would carry. Checksums are as the kernel left them; offloaded ones are not filled in.
type Capture struct {
	file   *os.File
	out    *observe.Writer
	socket int
	wake   int
	layer2 int // bytes before the IP packet

	once     sync.Once
	stopped  atomic.Bool
	done     chan struct{}
	err      error
	captured CaptureCount
}

// CaptureCount counts what a capture took and missed.
type CaptureCount struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`   // with link headers
	Dropped uint64 `json:"dropped"` // lost between the kernel and the file; must be 0 for the capture to be evidence
}

// Capture starts to record a device of a host to a new pcapng file, which only its owner can read. It has started when
// Capture returns, and ends at [Capture.Stop] or with ctx or the world. It is an error if the file exists.
func (in *Instance) Capture(ctx context.Context, host, device, file string) (*Capture, error) {
	h, err := in.LookupHost(host)
	if err != nil {
		return nil, err
	}
	c := &Capture{done: make(chan struct{})}
	var link observe.LinkType
	err = h.Do(func() error {
		link, err = c.listen(device)
		return err
	})
	if err != nil {
		return nil, &path.Error{What: "capture " + host + " " + device, Hint: "devices: ip -n " + h.ns.name + " link", Err: err}
	}
	if c.file, err = os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		c.closeSockets()
		return nil, &path.Error{What: "capture " + host + " " + device, Hint: "an earlier capture is never overwritten", Err: err}
	}
	comment := "world " + in.state.Name + ", host " + host
	if clients := in.state.World.addrsOf(in.state.World.Client); len(clients) > 0 {
		comment += " " + observe.ClientComment(clients...)
	}
	if c.out, err = observe.NewWriter(c.file, link, device, comment); err != nil {
		c.closeSockets()
		c.file.Close()
		return nil, err
	}
	go c.run()
	stop := context.AfterFunc(ctx, func() { c.Stop() })
	in.mu.Lock()
	in.running = append(in.running, func() { stop(); c.Stop() })
	in.mu.Unlock()
	return c, nil
}

// CaptureAll captures at places, named HOST/DEVICE, until stop. Each capture is a file in dir, such as home.pcapng.
func (in *Instance) CaptureAll(ctx context.Context, dir string, places map[string]string) (stop func() error, err error) {
	var running []*Capture
	stop = func() (err error) {
		for _, c := range running {
			_, stopped := c.Stop()
			err = errors.Join(err, stopped)
		}
		return err
	}
	for name, place := range places {
		host, device, _ := strings.Cut(place, "/")
		c, err := in.Capture(ctx, host, device, filepath.Join(dir, name+".pcapng"))
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		running = append(running, c)
	}
	return stop, nil
}

// CaptureWays captures, while use runs, what the routers of these access networks of [ThreeWays] see of the client.
func (in *Instance) CaptureWays(ctx context.Context, dir string, ways []string, use func() error) error {
	places := map[string]string{}
	for _, way := range ways {
		places[way] = way + "-gw/client"
	}
	stop, err := in.CaptureAll(ctx, dir, places)
	if err != nil {
		return err
	}
	return errors.Join(use(), stop())
}

// addrsOf returns the addresses of a host, in the order of its links.
func (w World) addrsOf(host string) []netip.Addr {
	var all []netip.Addr
	for _, l := range w.Links {
		for _, e := range []End{l.A, l.B} {
			if e.Host == host {
				for _, p := range e.Addrs {
					all = append(all, p.Addr())
				}
			}
		}
	}
	return all
}

// listen opens the packet socket in the namespace of the calling thread.
func (c *Capture) listen(device string) (link observe.LinkType, err error) {
	iface, err := net.InterfaceByName(device)
	if err != nil {
		return 0, err
	}
	link = observe.LinkRaw
	if len(iface.HardwareAddr) > 0 || iface.Flags&net.FlagLoopback != 0 {
		link, c.layer2 = observe.LinkEthernet, 14
	}
	// Protocol 0 receives nothing until bind names the device, so no packet of another device gets in before.
	c.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	c.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(c.socket)
		return 0, os.NewSyscallError("eventfd", err)
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	err = errors.Join(
		unix.SetsockoptInt(c.socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer),
		unix.SetsockoptInt(c.socket, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(c.socket, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.Bind(c.socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: iface.Index}))
	if err != nil {
		c.closeSockets()
	}
	return link, err
}

func (c *Capture) closeSockets() {
	unix.Close(c.socket)
	unix.Close(c.wake)
}

// Stop ends the capture, completes the file and returns its counts. The error says what is missing. It may be called again.
func (c *Capture) Stop() (CaptureCount, error) {
	c.once.Do(func() {
		// The times of packets would not tell which came before the end: the kernel notes them only some time after it was asked to, and
		// until then it gives the time of reading.
		refused := netutil.RefuseAll(c.socket)
		c.stopped.Store(true)
		unix.Write(c.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		<-c.done
		c.closeSockets()
		c.err = errors.Join(c.err, refused)
	})
	if c.err == nil && c.captured.Dropped > 0 {
		return c.captured, &path.Error{What: "capture " + c.file.Name(), Why: fmt.Sprintf("%d packets are missing", c.captured.Dropped),
			Hint: "capture less at a time, or to a faster disk"}
	}
	return c.captured, c.err
}

func (c *Capture) run() {
	defer close(c.done)
	err := c.receive()
	if stats, statErr := unix.GetsockoptTpacketStats(c.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS); statErr == nil {
		c.captured.Dropped += uint64(stats.Drops)
	}
	c.err = errors.Join(err, c.out.Finish(c.captured.Dropped), c.file.Close())
}

// receive writes packets until it is told to stop, and then those that are in the queue.
func (c *Capture) receive() error {
	polls := []unix.PollFd{{Fd: int32(c.socket), Events: unix.POLLIN}, {Fd: int32(c.wake), Events: unix.POLLIN}}
	buffer, control := make([]byte, 1<<17), make([]byte, 128)
	var last time.Time
	for {
		stop := c.stopped.Load() // first: nothing comes into a queue that was empty after that
		n, cn, _, _, err := unix.Recvmsg(c.socket, buffer, control, 0)
		switch err {
		case nil:
			at := kernelTime(control[:cn])
			// Another CPU may have stamped an earlier packet later. The order of the queue counts.
			if at.Before(last) {
				at = last
			}
			last = at
			if err := c.write(at, buffer[:n]); err != nil {
				return err
			}
		case unix.EINVAL: // a super-packet that the header cannot describe
			c.captured.Dropped++
		case unix.EAGAIN:
			if stop {
				return nil
			}
			if _, err := unix.Poll(polls, -1); err != nil && err != unix.EINTR {
				return os.NewSyscallError("poll", err)
			}
		case unix.EINTR, unix.ENETDOWN: // the device went down; it may come back
		default:
			return os.NewSyscallError("recvmsg", err)
		}
	}
}

func (c *Capture) write(at time.Time, data []byte) error {
	if len(data) < vnetHeaderLen {
		c.captured.Dropped++
		return nil
	}
	for packet := range segments(parseVnetHeader(data), c.layer2, data[vnetHeaderLen:]) {
		if err := c.out.Write(at, packet, len(packet)); err != nil {
			return err
		}
		c.captured.Packets++
		c.captured.Bytes += uint64(len(packet))
	}
	return nil
}

// kernelTime returns the kernel's receive timestamp of the packet.
func kernelTime(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err == nil {
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
				return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
			}
		}
	}
	return time.Now()
}
