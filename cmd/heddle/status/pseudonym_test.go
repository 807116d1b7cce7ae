package status

import (
	"bytes"
	"testing"

	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/internal/control"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/gateway/v6switch"
	"heddle/pseudonym/linker"
	"heddle/pseudonym/store"
	"heddle/pseudonym/tenant"
	"heddle/pseudonym/tenant/defence"
	"heddle/pseudonym/zone"
)

func TestPseudonymText(t *testing.T) {
	found := []running{
		{Name: "pseudonym", Status: control.Status{Pseudonym: &cloud.Status{Zone: "cloud.example", Gateway: &gateway.Counts{Live: 3, Relayed: 4031, Encrypted: 1200, Refused: 12, Failed: 1,
			BytesUp: 120_000, BytesDown: 9_000_000, AnswerAge: 95}, Switch: &v6switch.Counts{Led: 88_000, Own: 120, Unknown: 4, Refused: 3, Unreachable: 1}, Linker: &linker.Counts{Led: 7, Plain: 2, Asked: 1}, DNS: &zone.Counts{Answers: 90, Refused: 4, AnswerAge: 1},
			Store: map[store.Event]uint64{store.Registered: 12, store.Revoked: 1, store.RefusedRate: 2, store.RefusedSite: 3}}}},
		{Name: "tenant", Status: control.Status{Tenant: &tenant.Status{To: "http://127.0.0.1:8080", Live: 1, Defence: &defence.Cost{Objects: 1200, Pieces: 2413, Content: 7_000_000, Sent: 7_600_000, Would: map[string]uint64{"pad-pow2": 9_000_000, "pieces": 7_600_000, "site-constant": 40_000_000}}, Claim: "the first visit shows one page"}}},
	}
	var out bytes.Buffer
	if err := printStatus(&out, answer{Running: found}, statusNow, 0); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "status-pseudonym.golden", out.String())
}
