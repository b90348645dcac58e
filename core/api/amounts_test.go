package api

import (
	"errors"
	"strings"
	"testing"
)

func TestAmountsThatNobodyMeansAreRefused(t *testing.T) {
	for _, c := range []struct{ name, amount, why string }{
		{CPU, "2", ""}, {CPU, "500m", ""}, {CPU, "0.5", ""}, {CPU, "1m", ""}, {CPU, "100000", ""},
		{CPU, "0", "1m or more"}, {CPU, "0.0001", "1m or more"}, {CPU, "0m", "1m or more"}, {CPU, "-1", "a Kubernetes quantity"},
		{Memory, "1Mi", ""}, {Memory, "4G", ""}, {Memory, "1048576", ""}, {Memory, "0.5Gi", ""},
		{Memory, "4", "a number of bytes"}, {Memory, "0", "a number of bytes"}, {Memory, "4000m", "a number of bytes"}, {Memory, "1023Ki", "a number of bytes"},
		{Storage, "4", "a number of bytes"}, {EphemeralStorage, "10", "a number of bytes"},
		{Pods, "1", ""}, {Pods, "1k", ""}, {Pods, "2.0", ""}, {Pods, "0", "a whole number"}, {Pods, "1.5", "a whole number"}, {Pods, "500m", "a whole number"},
		{"nvidia.com/gpu", "1", ""}, {"nvidia.com/gpu", "0", "a whole number"}, {Memory, strings.Repeat("9", 31) + "P", ""},
	} {
		err := CheckAsked("resource", Resources{c.name: c.amount})
		var no *Error
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%s %s: %v", c.name, c.amount, err)
		case c.why != "" && (!errors.As(err, &no) || no.Code != CodeInvalid || no.Field != "resource."+c.name || !strings.Contains(no.Reason, c.why)):
			t.Errorf("%s %s: %v, want %q", c.name, c.amount, err, c.why)
		}
	}
	if err := CheckAsked("resource", nil); err != nil {
		t.Error(err)
	}
}

func TestAChangeIsSaidInWords(t *testing.T) {
	for _, c := range []struct {
		was, is, asked Resources
		want           string
	}{
		{nil, Resources{"cpu": "2", "memory": "4Gi"}, nil, "cpu 2, memory 4Gi"},
		{nil, Resources{"cpu": "2", "pods": "55"}, Resources{"cpu": "2"}, "cpu 2, pods 55"},
		{nil, Resources{"cpu": "8"}, Resources{"cpu": "100000"}, "cpu 8 (asked 100000)"},
		{Resources{"cpu": "1", "memory": "2Gi"}, Resources{"cpu": "2", "memory": "2Gi"}, nil, "cpu 1 → 2, memory 2Gi"},
		{Resources{"cpu": "1", "pods": "5"}, Resources{"cpu": "2"}, Resources{"cpu": "4", "pods": "5"}, "cpu 1 → 2 (asked 4), pods 5 → 0 (asked 5)"},
		{Resources{"cpu": "1"}, Resources{"cpu": "1", "a.com/x": "1"}, nil, "cpu 1, a.com/x 0 → 1"},
		// What is not shared is named last, and not all of it: the names are the asker's.
		{nil, Resources{"cpu": "1", "z.com/x": "1"}, Resources{"a.com/a": "1", "a.com/b": "1", "a.com/c": "1", "a.com/d": "9", "a.com/e": "1"},
			"cpu 1, z.com/x 1, a.com/a 0 (asked 1), a.com/b 0 (asked 1), a.com/c 0 (asked 1), none of 2 more that were asked for"},
		{nil, nil, nil, ""},
	} {
		if got := Change(c.was, c.is, c.asked); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestARequestThatGivesNothingSaysWhy(t *testing.T) {
	if got := (Request{Asked: Resources{"cpu": "1"}, Refusal: "sharing is paused"}).Grants(); got != "nothing: sharing is paused" {
		t.Error(got)
	}
	if got := (Request{Asked: Resources{"cpu": "1"}}).Grants(); !strings.HasPrefix(got, "nothing: ") { // a kithd that knows nothing of it
		t.Error(got)
	}
}

func TestAmountsAreRoundedForPeople(t *testing.T) {
	for _, c := range [][3]string{
		{Memory, "12001Mi", "11.7Gi"}, {Memory, "4Gi", "4Gi"}, {Memory, "1536Mi", "1.5Gi"}, {Memory, "67108864", "64Mi"}, {EphemeralStorage, "126429Mi", "123Gi"},
		{Memory, "512Mi", "512Mi"}, {Memory, "0", "0"}, {Memory, "4G", "4G"}, {Memory, "", ""}, {Memory, "1e3", "1e3"}, {Memory, "?", "?"},
		{CPU, "7910m", "7.9"}, {CPU, "500m", "500m"}, {CPU, "2", "2"}, {Pods, "1000", "1000"}, {"nvidia.com/gpu", "1", "1"},
	} {
		if got := Rounded(c[0], c[1]); got != c[2] {
			t.Errorf("%s %s: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestBytesWrittenWithABAreToldTheirUnits(t *testing.T) {
	for amount, want := range map[string]string{"4GB": "4G (powers of 1000) or 4Gi", "4GiB": "4G (powers of 1000) or 4Gi", "1.5kb": "1.5k (powers of 1000) or 1.5Ki"} {
		if err := CheckAmount("memory", amount); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", amount, err)
		}
	}
	if err := CheckAmount("memory", "B"); err == nil || strings.Contains(err.Error(), "powers") {
		t.Error(err)
	}
}
