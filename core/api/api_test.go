package api

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestListsAndMapsAreNeverNull(t *testing.T) {
	for _, v := range []any{Status{}, Snapshot{}, Peer{}, Request{}, Policy{}, Offload{}, Guest{}, VerifyResult{}, Event{}} {
		b, err := json.Marshal(v)
		if err != nil || strings.Contains(string(b), "null") {
			t.Errorf("%T: %s %v", v, b, err)
		}
	}
}

func TestDurationsReadBack(t *testing.T) {
	in := Tunnel{Up: true, RTT: Duration(1840 * time.Microsecond)}
	b, err := json.Marshal(in)
	if err != nil || !strings.Contains(string(b), `"rtt":"1.84ms"`) {
		t.Fatalf("%s %v", b, err)
	}
	var out Tunnel
	if err := json.Unmarshal(b, &out); err != nil || !reflect.DeepEqual(out, in) {
		t.Errorf("%+v %v", out, err)
	}
}

func TestEveryCodeHasStatusAndExitCode(t *testing.T) {
	for code, want := range map[Code][2]int{
		CodeInternal: {500, 1}, CodeInvalid: {400, 2}, CodeUnavailable: {503, 3}, CodeForbidden: {403, 4}, CodeNotFound: {404, 5},
		CodeConflict: {409, 1}, CodeNotReady: {503, 1}, CodePeerUnreachable: {502, 1}, CodeDeclined: {409, 6}, CodeExpired: {410, 6},
		CodeTimeout: {504, 7}, CodeUnsupported: {501, 1}, "a word of tomorrow": {500, 1},
	} {
		if got := [2]int{code.HTTPStatus(), code.ExitCode()}; got != want {
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
}

func TestErrorsMatchByCode(t *testing.T) {
	err := error(NotFound("peer", "bbo", "kith peers"))
	if !errors.Is(err, &Error{Code: CodeNotFound}) || errors.Is(err, &Error{Code: CodeInvalid}) {
		t.Error(err)
	}
	if err.Error() != "no peer \"bbo\" here (`kith peers` lists what there is)" {
		t.Error(err)
	}
}

func TestAmounts(t *testing.T) {
	for _, good := range []string{"0", "2", "500m", "1.5", "4Gi", "1000000000000"} {
		if err := CheckAmount("f", good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "-1", "+1", "4gi", "4 Gi", "1e3", "Gi", "50%", ".5", "1.", strings.Repeat("1", 33), "1\n"} {
		if err := CheckAmount("f", bad); !errors.Is(err, &Error{Code: CodeInvalid}) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for amount, percent := range map[string]bool{"0%": true, "100%": true, "101%": false, "%": false, "5.5%": false, "-1%": false, "+1%": false, "50": false, "1000%": false} {
		if err := CheckPercent("f", amount); (err == nil) != percent {
			t.Errorf("%q: %v", amount, err)
		}
	}
}

func TestResourcesAreNamedInTheOrderPeopleExpect(t *testing.T) {
	r := Resources{"nvidia.com/gpu": "1", "amd.com/gpu": "2", "pods": "20", "memory": "4Gi", "cpu": "2"}
	if got := r.String(); got != "cpu 2, memory 4Gi, pods 20, amd.com/gpu 2, nvidia.com/gpu 1" {
		t.Error(got)
	}
}

func TestPolicyChangeLeavesTheRest(t *testing.T) {
	yes, level := true, PodSecurityRestricted
	old := Policy{Name: "default", Amounts: Resources{"cpu": "1", "memory": "1Gi", "pods": "5"}, PodSecurity: PodSecurityBaseline}
	got := PolicyChange{Amounts: map[string]string{"cpu": "2", "pods": ""}, AutoAccept: &yes, PodSecurity: &level}.Apply(old)
	if got.Amounts.String() != "cpu 2, memory 1Gi" || !got.AutoAccept || got.PodSecurity != level || got.Name != "default" {
		t.Errorf("%+v", got)
	}
	if old.Amounts.String() != "cpu 1, memory 1Gi, pods 5" {
		t.Errorf("the old policy was changed: %v", old.Amounts)
	}
	if got := (PolicyChange{Amounts: map[string]string{"cpu": "2"}, OnlyAmounts: true}).Apply(old); got.Amounts.String() != "cpu 2" {
		t.Errorf("%+v", got)
	}
}

func TestCodesAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]string{"069210": "069210", "069 210": "069210", "": ""} {
		if got, err := ParseCode("code", text); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"69210", "0692100", "06921a", "-69210", "٠٦٩٢١٠"} {
		if got, err := ParseCode("code", text); err == nil {
			t.Errorf("%q was read as %q", text, got)
		}
	}
}

func TestPathEscapesOneSegment(t *testing.T) {
	if got := Path(PathAsk, "[fe80::1%eth0]:6450/../x"); got != "/v1/peers/%5Bfe80::1%25eth0%5D:6450%2F..%2Fx/ask" {
		t.Error(got)
	}
}
