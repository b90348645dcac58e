package api

import (
	"strings"
	"testing"
)

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
