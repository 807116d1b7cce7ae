// Package netns runs functions inside network namespaces, which are a property of threads.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// OnThread runs f on a locked thread, after enter moved it to a network namespace. Sockets that f opens stay in the
// namespace; goroutines that f starts do not run in it.
func OnThread(enter, f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the function ended its goroutine")
		defer func() { done <- err }()
		runtime.LockOSThread()
		home, homeErr := netns.Get()
		if homeErr != nil {
			err = homeErr
			return
		}
		defer home.Close()
		defer func() {
			// If the thread cannot return, the goroutine ends locked, so the thread ends too.
			if netns.Set(home) == nil {
				runtime.UnlockOSThread()
			}
		}()
		if refused := enter(); refused != nil {
			err = refused
			return
		}
		err = f()
	}()
	return <-done
}

func In(namespace netns.NsHandle, f func() error) error {
	return OnThread(func() error { return netns.Set(namespace) }, f)
}

// Setting is a name below /proc/sys/net and its value.
type Setting [2]string

// Configure applies settings in the calling thread's namespace.
func Configure(settings ...Setting) error {
	for _, s := range settings {
		if err := os.WriteFile("/proc/sys/net/"+s[0], []byte(s[1]), 0); err != nil {
			return fmt.Errorf("sysctl %s: %w", s[0], err)
		}
	}
	return nil
}

// AwaitCarrier waits until a device of a handle's namespace carries packets. The kernel drops earlier packets, as it notices
// with a delay that the peer of a veth is up.
func AwaitCarrier(of *netlink.Handle, device string) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		link, err := of.LinkByName(device)
		if err != nil || link.Attrs().OperState == netlink.OperUp {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("device %s has no carrier: it is %v", device, link.Attrs().OperState)
		}
	}
}
