package localapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/apitest"
)

func TestWhatKeepsItAwakeIsChecked(t *testing.T) {
	b := &apitest.Backend{State: api.Status{Awake: &api.Awake{}, Counts: api.Counts{Guests: 1}}}
	c, socket := serve(t, b)
	for body, status := range map[string]int{
		``: http.StatusBadRequest, `{}`: http.StatusBadRequest, `{"for":"2y"}`: http.StatusBadRequest, `{"for":"25h"}`: http.StatusBadRequest,
		`{"for":"-1h"}`: http.StatusBadRequest, `{"off":true,"for":"1h"}`: http.StatusBadRequest, `{"forever":true}`: http.StatusBadRequest, `[`: http.StatusBadRequest,
	} {
		if got, text := curl(t, socket, "POST", api.PathAwake, body); got != status {
			t.Errorf("%q: %d %s", body, got, text)
		}
	}
	if got, text := curl(t, socket, "POST", api.PathAwake+"?dryRun=true", `{"off":true}`); got != http.StatusBadRequest {
		t.Errorf("a dry run: %d %s", got, text)
	}
	for _, call := range b.Called() {
		if strings.HasPrefix(call, "KeepAwake") {
			t.Error("it was kept awake:", call)
		}
	}
	is, err := c.KeepAwake(t.Context(), api.AwakeOptions{UntilGuestsEnd: true, For: api.Duration(2 * time.Hour)})
	if err != nil || !is.Kept || !is.UntilGuestsEnd || is.Until.Sub(is.Since) != 2*time.Hour {
		t.Errorf("%+v, %v", is, err)
	}
	if is, err = c.KeepAwake(t.Context(), api.AwakeOptions{Off: true}); err != nil || is != (api.Awake{}) {
		t.Errorf("%+v, %v", is, err)
	}
}
