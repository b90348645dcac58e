package portmap

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// TestOnlyTheRouterIsAsked: whatever it says of where its services are, nothing is sent elsewhere, and no more is read than an answer has.
func TestOnlyTheRouterIsAsked(t *testing.T) {
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer elsewhere.Close()
	there := strings.Replace(elsewhere.URL, "127.0.0.1", "127.0.0.2", 1)
	router := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, there, http.StatusFound)
		case "/endless":
			for {
				if _, err := io.WriteString(w, strings.Repeat("<a>", 1000)); err != nil {
					return
				}
			}
		case "/services":
			io.WriteString(w, `<root xmlns="urn:schemas-upnp-org:device-1-0"><URLBase>`+there+`</URLBase><device><deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:1</deviceType>
				<serviceList><service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType><controlURL>`+there+`/control</controlURL></service></serviceList></device></root>`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer router.Close()
	at := way{router: netip.MustParseAddr("127.0.0.1"), own: netip.MustParseAddr("127.0.0.1")}
	ask := func(base, path string) (connection, error) {
		where, err := url.Parse(base + path)
		if err != nil {
			t.Fatal(err)
		}
		return device(context.Background(), at, where)
	}
	for _, c := range [][2]string{{router.URL, "/redirect"}, {router.URL, "/endless"}, {router.URL, "/none"}, {there, "/"}, {"file://127.0.0.1", "/etc/passwd"}, {"http://router.invalid", "/"}} {
		if _, err := ask(c[0], c[1]); err == nil {
			t.Errorf("%s%s is taken", c[0], c[1])
		}
	}
	c, err := ask(router.URL, "/services")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetExternalIPAddressCtx(t.Context()); err == nil || asked > 0 {
		t.Errorf("it is asked elsewhere, %d times: %v", asked, err)
	}
}
