package lab

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// batch is how many packets are read from one device before due packets are sent.
const batch = 32

// emulator moves the packets of one link between its two TUN devices, on its own thread in the engine process.
type emulator struct {
	ends [2]int // TUN devices of A and B
	wake int    // eventfd

	mu    sync.Mutex
	queue [2]*queue // from A, from B
	late  lateness

	start time.Time
	free  [][]byte
}

// newEmulator takes over the two file descriptors and starts the thread.
func newEmulator(a, b int, link LinkSpec, seed, index uint64) (*emulator, error) {
	wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	e := &emulator{ends: [2]int{a, b}, wake: wake, start: time.Now()}
	e.queue[0] = newQueue(link.AtoB, seed, index*2)
	e.queue[1] = newQueue(link.BtoA, seed, index*2+1)
	go e.run()
	return e, nil
}

// run is the thread. It avoids Go's timers, which round to a millisecond on an idle machine.
func (e *emulator) run() {
	runtime.LockOSThread()
	polls := []unix.PollFd{
		{Fd: int32(e.ends[0]), Events: unix.POLLIN},
		{Fd: int32(e.ends[1]), Events: unix.POLLIN},
		{Fd: int32(e.wake), Events: unix.POLLIN},
	}
	for {
		wait := e.deliver()
		var timeout *unix.Timespec
		if wait >= 0 {
			t := unix.NsecToTimespec(int64(wait))
			timeout = &t
		}
		if n, err := unix.Ppoll(polls, timeout, nil); err != nil || n == 0 {
			continue // a due packet, or a signal
		}
		for end := range e.ends {
			if polls[end].Revents != 0 {
				e.receive(end)
			}
		}
		if polls[2].Revents != 0 {
			var drain [8]byte
			unix.Read(e.wake, drain[:])
		}
	}
}

// deliver sends all due packets. It returns the time until the next one is due, or -1 if none waits.
func (e *emulator) deliver() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	wait := time.Duration(-1)
	for from, q := range e.queue {
		now := time.Since(e.start)
		for {
			packet, due, ok := q.pop(now)
			if !ok {
				break
			}
			e.late.record(now - due)
			if _, err := unix.Write(e.ends[1-from], packet); err != nil {
				q.count.Refused++ // the device at the far end is down
			} else {
				q.count.Delivered++
				q.count.DeliveredBytes += uint64(len(packet))
			}
			e.free = append(e.free, packet)
			now = time.Since(e.start)
		}
		if due, ok := q.next(); ok && (wait < 0 || due-now < wait) {
			wait = max(due-now, 0)
		}
	}
	return wait
}

// receive reads what one end sent into its queue.
func (e *emulator) receive(end int) {
	for range batch {
		buffer := e.buffer()
		n, err := unix.Read(e.ends[end], buffer)
		if err != nil || n == 0 {
			e.free = append(e.free, buffer)
			return
		}
		e.mu.Lock()
		kept := e.queue[end].push(time.Since(e.start), buffer[:n])
		e.mu.Unlock()
		if !kept {
			e.free = append(e.free, buffer)
		}
	}
}

// buffer returns a buffer for one packet. Only the thread may call it.
func (e *emulator) buffer() []byte {
	if n := len(e.free); n > 0 {
		b := e.free[n-1]
		e.free = e.free[:n-1]
		return b[:cap(b)]
	}
	return make([]byte, maxPacket)
}

// set changes the shape of both directions and whether the link is cut.
func (e *emulator) set(ab, ba Shape, cut bool) {
	e.mu.Lock()
	e.queue[0].reshape(ab)
	e.queue[1].reshape(ba)
	e.queue[0].cut, e.queue[1].cut = cut, cut
	e.mu.Unlock()
	unix.Write(e.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // wakes the thread
}

// status returns the status of the link, and adds its lateness to that of all links.
func (e *emulator) status(name string, all *lateness) LinkStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	all.add(&e.late)
	return LinkStatus{name, e.queue[0].count, e.queue[1].count, e.late.summary()}
}

func (e *emulator) resetLateness() {
	e.mu.Lock()
	e.late = lateness{}
	e.mu.Unlock()
}

// openTUN makes a layer 3 device in the namespace of the calling thread. Without IFF_VNET_HDR the kernel sends single
// packets with full checksums instead of super-packets, so that loss is exact.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make TUN device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
