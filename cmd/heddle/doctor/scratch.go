package doctor

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// inScratch runs try in a temporary network namespace, so that it cannot change the machine. made is false if this user
// may not make one; then try did not run.
func inScratch(try func() error) (made bool, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked: the thread ends with the goroutine, and the namespace with the thread.
		runtime.LockOSThread()
		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			return
		}
		made, err = true, try()
	}()
	<-done
	return made, err
}
