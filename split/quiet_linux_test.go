package split

import (
	"testing"
	"time"

	"heddle/path"
)

// Paths that nothing happens to are not asked for again and again: each question takes a netlink socket.
func TestQuietMachineIsNotAsked(t *testing.T) {
	server, _ := echo(t)
	r := startRelay(t, server, nil)
	c := client(t, r.Addr())
	watch, err := path.NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	for end := time.Now().Add(time.Minute); ; {
		watch.Changed()
		before := path.Questions()
		for range 20 {
			c.Write([]byte("hello"))
			r.Status()
			time.Sleep(50 * time.Millisecond)
		}
		asked := path.Questions() - before
		if !watch.Changed() { // else something happened on this machine
			if asked > 0 && time.Now().After(end.Add(-50*time.Second)) {
				t.Errorf("the kernel was asked %d questions in a quiet second", asked)
			}
			if asked == 0 || t.Failed() {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatal("something happens all the time")
		}
	}
}
