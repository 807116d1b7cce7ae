package path

import (
	"strings"
	"testing"
)

func TestAbsentDeviceAndAddressExplainThemselves(t *testing.T) {
	for text, why := range map[string]string{"a=if:absent0": "no device is called absent0", "a=src:203.0.113.77": "no device here has the address", "a=ports:absent0": "no device"} {
		s, _ := ParseSpec(text)
		p, err := New(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if info := p.Describe(); info.Ready || !strings.Contains(info.Why, why) || info.Hint == "" {
			t.Errorf("%s: %+v", text, info)
		}
		if _, err := Open(t.Context(), p, mustAddrPort("192.0.2.1:9")); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: open says %v", text, err)
		}
	}
}
