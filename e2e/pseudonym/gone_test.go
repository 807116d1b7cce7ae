package pseudonym

import (
	"fmt"
	"strings"
	"testing"

	"heddle/internal/polltest"
)

// PostgreSQL is gone, under all parts at once. Visits of pseudonyms that gateways and sidecars know go on for longer than a revocation may take, and nobody can
// register or revoke. When it is back, all of that works again, and a revocation holds everywhere.
func TestPostgreSQLIsGone(t *testing.T) {
	w := newTwins(t)
	r := w.get(news)
	for twin := range 2 { // so that none of them has met the client's pseudonym of the store
		w.restart(storePart, twin)
		w.restart(gatewayPart, twin)
	}
	visits := func() (all error) {
		for twin := range 2 {
			if ok, _ := w.visit(r, twin); !ok {
				all = fmt.Errorf("gateway %d does not lead to the site\n%s", twin, w.parts[gatewayPart][twin].Log())
			}
			if ok, _ := w.near(r, twin); !ok {
				all = fmt.Errorf("sidecar %d does not serve\n%s", twin, w.parts[sidecarPart][twin].Log())
			}
		}
		return all
	}
	polltest.Until(t, visits)
	age := func(twin int) float64 { return w.number(gatewayPart, twin, "heddle_pseudonym_gateway_answer_age_s") }
	w.postgres.Stop(t)
	const revocation = 5 // seconds
	for twin := range 2 {
		polltest.Await(t, fmt.Sprint("answers at gateway ", twin, " that stand in"), func() bool {
			if err := visits(); err != nil {
				t.Fatal(err)
			}
			return age(twin) > 2*revocation
		})
	}
	for range 4 { // gateways take one of both stores
		for what, err := range map[string]error{"a registration": w.register(), "a revocation": w.tried("revoke", news), "a registration by the other gateway": w.registerBy(1)} {
			if err == nil || !strings.Contains(err.Error(), "its database does not answer") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if err := visits(); err != nil {
		t.Error(err)
	}
	w.postgres.Restart(t)
	polltest.Until(t, w.register)
	polltest.Until(t, visits)
	for twin := range 2 {
		polltest.Await(t, fmt.Sprint("answers of now at gateway ", twin), func() bool { return visits() == nil && age(twin) == 0 })
	}
	w.Run("client", "pseudonym", "revoke", news)
	for twin := range 2 {
		polltest.Await(t, fmt.Sprint("the revocation at gateway ", twin), func() bool { _, refused := w.visit(r, twin); return refused })
		polltest.Await(t, fmt.Sprint("the revocation at sidecar ", twin), func() bool { _, refused := w.near(r, twin); return refused })
	}
}
