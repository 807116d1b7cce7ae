package pseudonym

import (
	"sync"
	"testing"

	"heddle/lab"
	"heddle/lab/labtest"
)

// Connections with encrypted names move too, and the network sees no pseudonym.
func TestHandOffHidesThePseudonym(t *testing.T) {
	w, r, agent := movingWorld(t, lab.OpenCloud("cloud", "news"), (*world).serveAll)
	list := w.hello()
	dir := t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, map[string]string{"isp": "isp/client"})
	const clients, visits = 3, 4
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range visits {
				page, state, err := w.fetch(r, list, byIPv4)
				if err != nil || page != text(news) || !state.ECHAccepted {
					t.Errorf("%q, %v\n%s", page, err, agent.Log())
					return
				}
			}
		})
	}
	all.Wait()
	end()
	w.moved(clients * visits)
	if got := number(w, gatewayMetrics, "heddle_pseudonym_gateway_encrypted"); got != clients*visits {
		t.Errorf("%v connections of %d are counted as encrypted", got, clients*visits)
	}
	unseen(t, dir, r.Name)
}
