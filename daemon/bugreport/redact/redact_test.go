package redact_test

import (
	"bytes"
	"strings"
	"testing"

	"kith.dev/daemon/bugreport/redact"
)

const (
	jwt  = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImFiYyJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLW9mLXRoaXMtdG9rZW4"
	wg   = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="
	body = "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF"
)

// secrets are texts, each with what must not be left of it.
var secrets = map[string]struct{ text, secret string }{
	"bearer":                   {"GET /api: Authorization: Bearer " + jwt, jwt},
	"bearer that is no JWT":    {`header="authorization: bearer s3cr3t-0paque-token" status=401`, "s3cr3t-0paque-token"},
	"basic":                    {"Proxy-Authorization: Basic YWxhZGRpbjpvcGVuc2VzYW1l", "YWxhZGRpbjpvcGVuc2VzYW1l"},
	"JWT alone":                {"token file has " + jwt + " in it", jwt},
	"PEM":                      {"key:\n-----BEGIN PRIVATE KEY-----\n" + body + "\n-----END PRIVATE KEY-----\nend", body},
	"PEM in one line":          {`msg="-----BEGIN PRIVATE KEY-----\n` + body + `\n-----END PRIVATE KEY-----\n"`, body},
	"PEM without its end":      {"-----BEGIN EC PRIVATE KEY-----\n" + body, body},
	"PEM without its head":     {body + "\n" + body[:20] + "\n-----END PRIVATE KEY-----\n", body[:20]},
	"a line of PEM":            {body, body},
	"WireGuard":                {"private key is " + wg, wg},
	"WireGuard, in a list":     {"[" + wg + "," + wg + "]", wg},
	"password":                 {"password=hunter2 user=me", "hunter2"},
	"JSON":                     {`{"user":"me","dbPassword": "hunter2 and more"}`, "hunter2"},
	"JSON, with a quote in it": {`{"password":"hun\"ter2"}`, "ter2"},
	"JSON in a string":         {`msg="{\"token\":\"hunter2\"}"`, "hunter2"},
	"YAML":                     {"client-key-data: " + wg + "\n", wg},
	"YAML, in the next line":   {"password:\n  hunter2\nuser: me", "hunter2"},
	"YAML, a block":            {"token: |-\n\n  hunter2\n", "hunter2"},
	"flag":                     {"args: --registration-token hunter2", "hunter2"},
	"flag with =":              {"args: --token=hunter2", "hunter2"},
	"URL":                      {"proxy http://me:hunter2@proxy.example:3128/", "hunter2"},
	"bootstrap token":          {"join with abcdef.0123456789abcdef now", "0123456789abcdef"},
	"GitHub":                   {"clone: ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefgh"},
	"AWS":                      {"id AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"},
	"header of several words":  {`Authorization: Digest username="me", realm="x", response="hunter2"`, "hunter2"},
	"header in a map":          {"map[Accept:[*/*] Authorization:[Bearer hunter2x]]", "hunter2x"},
	"header in JSON":           {`{"Authorization":["Bearer hunter2x"]}`, "hunter2x"},
	"cookies":                  {"Cookie: theme=dark; session=hunter2", "hunter2"},
	"URL, a token as the user": {"clone https://0123hunter2@git.example/x.git", "hunter2"},
	"URL, a slash and an @":    {"proxy http://me:hun@t/er2@proxy.example:3128/", "er2@"},
	"URL, MySQL's":             {"dsn root:hunter2@tcp(127.0.0.1:3306)/db", "hunter2"},
	"URL, presigned":           {`GET "https://cdn.example/blob?Expires=1&X-Amz-Signature=00ff00ffhunter2": 403`, "hunter2"},
	"URL, exec":                {`msg="slow" uri="/api/v1/namespaces/shop/pods/db/exec?command=psql\u0026command=-phunter2\u0026stdout=true"`, "hunter2"},
	"URL, exec, second word":   {"GET /exec?container=db&command=mysql&command=-phunter2&stdin=true", "hunter2"},
	"command of a probe":       {`level=ERROR msg="ExecSync cmd from runtime service failed" containerID=bb9a cmd="[redis-cli -a hunter2 ping]"`, "hunter2"},
	"command, quotes in it":    {`cmd="[sh -c \"[ -f x ] && login hunter2\"]" after=1`, "hunter2"},
	"command, JSON":            {`cmd=["sh","-c","[ -f x ] && login hunter2"]`, "hunter2"},
	"hook":                     {`Exec lifecycle hook ([sh -c (login hunter2)]) for Container "db" in Pod "db_shop" failed`, "hunter2"},
	"environment, Go":          {"&Container{Name:db,Image:db,Command:[],Args:[],Env:[]EnvVar{EnvVar{Name:X,Value:hunter2,ValueFrom:nil,},},} start failed in pod db_shop: not found", "hunter2"},
	"environment, Go syntax":   {`err="Pod \"db\" is invalid: spec: Forbidden: pod updates may not change fields\n core.PodSpec{\n Env: []core.EnvVar{{Name: \"X\", Value: \"hunter2\"}}"`, "hunter2"},
	"environment, JSON":        {`patch {"spec":{"containers":[{"name":"db","env":[{"name":"X","value":"hunter2"}]}]}}`, "hunter2"},
	"environment, one":         {`{"name":"X","value":"hun\"ter2"}`, "ter2"},
	"environment, in a string": {`msg="{\"name\":\"X\",\"value\":\"hunter2\"}"`, "hunter2"},
	"arguments, JSON":          {`msg="{\"args\":[\"-p\",\"hunter2\"]}"`, "hunter2"},
	"a Secret's data":          {`{"kind":"Secret","data":{"x":"aHVudGVyMg=="}}`, "aHVudGVyMg"},
	"refused field":            {`err="Pod \"db\" is invalid: spec.containers[0].env[0].value: Invalid value: \"hunter2\": must be no secret"`, "hunter2"},
	"refused object":           {`spec.template: Invalid value: {"containers":[{"env":"hunter2"}]}: field is immutable`, "hunter2"},
	"pull secret":              {`{"auths":{"registry.example":{"auth":"bWU6aHVudGVyMg=="}}}`, "bWU6aHVudGVyMg"},
	"pull secret, encoded":     {".dockerconfigjson: eyJhdXRocyI6eyJ4Ijp7fX19Cg==", "eyJhdXRocyI6eyJ4"},
	"word within":              {"SECRET_KEY_BASE=hunter2 TOKEN_VALUE=hunter2", "hunter2"},
	"environment, shell":       {"export DATA_KEY=hunter2", "hunter2"},
	"flag, quoted":             {`args: --password "hunter2 and more"`, "hunter2"},
	"WireGuard, on a new line": {`msg="[Interface]\nPrivate\n` + wg + `\n"`, wg},
	"WireGuard, in hex":        {"private_key=c8a9f3e53165f975c9b5ed2d5e2b88ef394c36afa175dad850822024181df069", "c8a9f3e5"},
	"Vault":                    {"renewed hvs.CAESIJ0123456789abcdefghij", "CAESIJ"},
	// What the owner of a pod wrote into its spec.
	"image, a password":            {`Failed to pull image "me:hunter2@registry.example/team/web:1": failed to resolve reference`, "hunter2"},
	"image, a password and a path": {`image=me:hun/ter2@registry.example:5000/web@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`, "ter2"},
	"image, in a string":           {`err="failed to resolve image \"me:hunter2@registry.example/web\": invalid reference format"`, "hunter2"},
	"image, a token":               {`PullImage "hunter2@registry.example/web:1"`, "hunter2"},
	"image, YAML":                  {"  image: hunter2@registry.example/web:1", "hunter2"},
	"image, in a list":             {"registries: [me:hunter2@registry.example:5000]", "hunter2"},
	"command, its first word":      {`err="failed to create containerd task: OCI runtime create failed: unable to start container process: error during container init: exec: \"hunter2\": executable file not found in $PATH"`, "hunter2"},
	"command, a path":              {`exec: "/hunter2": stat /hunter2: no such file or directory`, "hunter2"},
	"command, in a string twice":   {`msg="err=\"exec: \\\"login hunter2\\\": stat login hunter2: no such file or directory\""`, "hunter2"},
	"command, a script":            {`exec: "sh -c \"login hunter2\"": executable file not found in $PATH`, "hunter2"},
	"command, forked":              {"fork/exec /opt/hunter2: no such file or directory", "hunter2"},
	"working folder":               {`chdir to cwd ("/hunter2") set in config.json failed: no such file or directory`, "hunter2"},
	"hook, and what it said":       {`err="command 'sh -c login hunter2' exited with 1: hunter2 is wrong"`, "hunter2"},
	"probe, what it said":          {`msg="Probe failed" probeType="Readiness" probeResult="failure" output="login with hunter2 failed\n"`, "hunter2"},
	"probe, Go":                    {"&Probe{ProbeHandler:ProbeHandler{Exec:&ExecAction{Command:[login hunter2],},},}", "hunter2"},
	"volume, NFS":                  {"mount.nfs: access denied by server while mounting nas.example:/export/hunter2", "hunter2"},
	"volume, NFS over IPv6":        {"mount.nfs: mounting [fd00::1]:/export/hunter2 failed", "hunter2"},
	"volume, how it is mounted":    {`err="mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t cifs -o username=me //nas/hunter2 /var/lib/kith/x\nOutput: no\n"`, "hunter2"},
	"volume, Go":                   {"volume &Volume{Name:x,VolumeSource:VolumeSource{NFS:&NFSVolumeSource{Server:nas,Path:/hunter2,},},}", "hunter2"},
	"volume, JSON":                 {`{"volumes":[{"name":"x","nfs":{"server":"nas","path":"/hunter2"}}]}`, "hunter2"},
	"volume, its attributes":       {`{"csi":{"driver":"x","volumeAttributes":{"share":"//nas/hunter2"}}}`, "hunter2"},
	"header of a probe":            {`{"httpGet":{"httpHeaders":[{"name":"X","value":"hunter2"}]}}`, "hunter2"},
	"last-applied":                 {`{"kubectl.kubernetes.io/last-applied-configuration":"{\"stringData\":{\"api-key\":\"hunter2\"}}"}`, "hunter2"},
}

func TestWhatLooksSecretIsTakenOut(t *testing.T) {
	for name, tc := range secrets {
		got := redact.String(tc.text)
		if strings.Contains(got, tc.secret) || !strings.Contains(got, redact.Mark) {
			t.Errorf("%s: %s", name, got)
		}
		if again := redact.String(got); strings.Contains(again, tc.secret) {
			t.Errorf("%s, again: %s", name, again)
		}
	}
}

func TestWhatHelpsIsLeft(t *testing.T) {
	for _, text := range []string{
		"",
		"bob: no handshake for 40 s at 192.168.1.20:6450",
		"peer=bob id=MFZWI3D-BOBBOBB-OBBOBBO-BBOBBOB-BOBBOBB-OBBOBBO-BBOBBOB-BOBBOBB",
		"image sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 pulled",
		"2026-03-01T12:00:00.000000Z level=INFO msg=\"the tunnel is up\" rtt=1.8ms",
		"/var/lib/kith/k8s/kubelet/pods/4b1e0c86-0d53-4c37-8f12-8fbd3f0f6f8f/volumes",
		"node kith-bob is not Ready: the contract was ended by its owner",
		`err="Put \"https://127.0.0.1:6443/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/alice?timeout=5s\": context deadline exceeded"`,
		`msg="Failed to watch" err="failed to list *v1.Pod: Get \"https://127.0.0.1:6443/api/v1/pods?limit=500&resourceVersion=0\": connection refused"`,
		"container db start failed in pod db_shop(4b1e0c86): CreateContainerConfigError: secret \"db\" not found",
		"image registry.example:5000/team/web@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 pulled",
		"is kithd running there? key=value is not asked for",
		`msg="local API call" call="GET /v1/doctor" uid=1000 pid=4711 err=<nil>`,
		`Pulled image "registry.example:5000/team/web:1@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`,
		`msg="Probe failed" output="Get \"http://10.42.0.7:8080/\": dial tcp 10.42.0.7:8080: connect: connection refused"`,
		`probeResult="failure" output="HTTP probe failed with statuscode: 503"`,
		"dial unix:/run/kith/k8s/containerd/containerd.sock: no such file or directory",
		"root@alice asks; 10.42.0.7:8080 answers https://[fd00::1]:6450/v1/hello",
		"Contract.kith.dev \"c\" is invalid: spec.name: Invalid value: \"A\": must be in small letters",
	} {
		if got := redact.String(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func BenchmarkText(b *testing.B) {
	line := "2026-03-01T12:00:00.000000Z level=INFO msg=\"the tunnel is up\" peer=bob rtt=1.8ms key=value path=/var/lib/kith/k8s/kubelet/pods/4b1e0c86-0d53\n"
	text := []byte(strings.Repeat(line, 1<<20/len(line)))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		redact.Text(text)
	}
}

// TestWhyAContainerDidNotStartIsLeft: of a container that the kubelet prints whole, the reason behind it is what helps.
func TestWhyAContainerDidNotStartIsLeft(t *testing.T) {
	got := redact.String(secrets["environment, Go"].text)
	if want := "&Container{" + redact.Mark + " start failed in pod db_shop: not found"; got != want {
		t.Errorf("%s", got)
	}
}

// FuzzText: whatever stands around, a secret in a form that is known is not left.
func FuzzText(f *testing.F) {
	f.Add("", "")
	f.Add("level=INFO msg=\"", "\" err=none")
	f.Add("-----BEGIN", "-----END X-----")
	f.Add("token: \"", "\\")
	f.Fuzz(func(t *testing.T, before, after string) {
		for name, secret := range map[string]string{
			"JWT":       jwt,
			"bearer":    "Authorization: Bearer zq3-0paque-token-zq3",
			"PEM":       "-----BEGIN PRIVATE KEY-----\n" + body + "\n-----END PRIVATE KEY-----",
			"WireGuard": " " + wg,
			"password":  " password=zq3hunter2zq3 ",
		} {
			got := redact.Text([]byte(before + "\n" + secret + "\n" + after))
			for _, part := range []string{jwt, "zq3-0paque-token-zq3", body, wg, "zq3hunter2zq3"} {
				if strings.Contains(secret, part) && !strings.Contains(before+after, part) && bytes.Contains(got, []byte(part)) {
					t.Errorf("%s is left between %q and %q: %q", name, before, after, got)
				}
			}
		}
	})
}
