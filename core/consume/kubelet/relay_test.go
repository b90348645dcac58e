package kubelet

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestQueriesBecomeThoseOfThePodsAPI(t *testing.T) {
	for _, tc := range []struct {
		translate func(url.Values) url.Values
		kubelet   string
		want      string
	}{
		{logQuery, "follow=true&tailLines=5&sinceTime=2026-01-01T00%3A00%3A00Z&insecureSkipTLSVerifyBackend=true", "follow=true&sinceTime=2026-01-01T00%3A00%3A00Z&tailLines=5"},
		{logQuery, "previous=true&timestamps=true&limitBytes=10&sinceSeconds=3&stream=All", "limitBytes=10&previous=true&sinceSeconds=3&stream=All&timestamps=true"},
		{streamQuery, "command=sh&command=-c&command=a+b&input=1&output=1&tty=1", "command=sh&command=-c&command=a+b&stdin=true&stdout=true&tty=true"},
		{streamQuery, "output=1&error=1&input=0&container=other", "stderr=true&stdout=true"},
		{portQuery, "port=80%2C8080&port=90", "ports=80&ports=8080&ports=90"},
		{portQuery, "", ""},
	} {
		in, err := url.ParseQuery(tc.kubelet)
		if err != nil {
			t.Fatal(err)
		}
		if got := tc.translate(in).Encode(); got != tc.want {
			t.Errorf("%s became %s, want %s", tc.kubelet, got, tc.want)
		}
	}
}

func TestErrorsOfThePeerAreText(t *testing.T) {
	answer := func(code int, contentType, body string) *http.Response {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body))}
	}
	status := `{"kind":"Status","message":"container c is not valid"}`
	for name, tc := range map[string]struct {
		resp *http.Response
		want string
	}{
		"a Status is its message":     {answer(400, "application/json", status), "container c is not valid"},
		"other JSON stays":            {answer(502, "application/json", `[1]`), `[1]`},
		"text stays":                  {answer(404, "text/plain", "no"), "no"},
		"what succeeds is not looked": {answer(200, "application/json", status), status},
	} {
		if err := plainError(tc.resp); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if body, _ := io.ReadAll(tc.resp.Body); string(body) != tc.want {
			t.Errorf("%s: %q, want %q", name, body, tc.want)
		}
	}
}
