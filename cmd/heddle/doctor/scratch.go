package doctor

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// inScratch runs try in a network namespace that ends with it, so that nothing of the machine's is touched. made is
// false where this user may not make one; then try did not run.
func inScratch(try func() error) (made bool, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is never unlocked: it ends with the goroutine, and the namespace with the thread.
		runtime.LockOSThread()
		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			return
		}
		made, err = true, try()
	}()
	<-done
	return made, err
}
