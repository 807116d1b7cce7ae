// Package netns runs functions inside network namespaces, which belong to threads.
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

// OnThread runs f on a thread of its own, after enter has moved that to a network namespace. Sockets that f opens stay in the
// namespace. Goroutines that f starts do not run in it.
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
			// Where the way back fails the goroutine ends locked, and so the thread with it.
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

// In runs f on a thread inside a namespace.
func In(namespace netns.NsHandle, f func() error) error {
	return OnThread(func() error { return netns.Set(namespace) }, f)
}

// Setting is the name below /proc/sys/net of a setting, and its value.
type Setting [2]string

// Configure makes settings in the calling thread's namespace.
func Configure(settings ...Setting) error {
	for _, s := range settings {
		if err := os.WriteFile("/proc/sys/net/"+s[0], []byte(s[1]), 0); err != nil {
			return fmt.Errorf("sysctl %s: %w", s[0], err)
		}
	}
	return nil
}

// AwaitCarrier waits until a device of a handle's namespace carries packets. The kernel drops what is sent before: it hears
// only a moment later that the other end of a veth is up too.
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
