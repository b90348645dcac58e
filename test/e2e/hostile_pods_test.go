//go:build lab

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
)

// dangerous is a container, and more of its pod's spec, that must not run at bob. Word is part of what is answered.
type dangerous struct{ name, container, pod, word string }

var dangers = []dangerous{
	{"hostnetwork", ``, `"hostNetwork":true`, "hostNetwork"},
	{"hostpid", ``, `"hostPID":true`, "hostPID"},
	{"hostipc", ``, `"hostIPC":true`, "hostIPC"},
	{"hostpath", ``, `"volumes":[{"name":"v","hostPath":{"path":"/"}}]`, "volumes[0] (v)"},
	{"nfs", ``, `"volumes":[{"name":"v","nfs":{"server":"192.0.2.1","path":"/"}}]`, "volumes[0] (v)"},
	{"csi", ``, `"volumes":[{"name":"v","csi":{"driver":"x.y"}}]`, "volumes[0] (v)"},
	{"claim", ``, `"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"x"}}]`, "volumes[0] (v)"},
	{"token", ``, `"volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}]`, "service account token"},
	{"trust", ``, `"volumes":[{"name":"v","projected":{"sources":[{"clusterTrustBundle":{"path":"t","name":"x"}}]}}]`, "certificates"},
	{"claims", ``, `"resourceClaims":[{"name":"gpu","resourceClaimName":"x"}]`, "resourceClaims"},
	{"privileged", `"securityContext":{"privileged":true}`, ``, "privileged"},
	{"sysadmin", `"securityContext":{"capabilities":{"add":["SYS_ADMIN"]}}`, ``, "capabilities"},
	{"netadmin", `"securityContext":{"capabilities":{"add":["NET_ADMIN"]}}`, ``, "capabilities"},
	{"netraw", `"securityContext":{"capabilities":{"add":["NET_RAW"]}}`, ``, "capabilities"},
	{"allcaps", `"securityContext":{"capabilities":{"add":["ALL"]}}`, ``, "capabilities"},
	{"proc", `"securityContext":{"procMount":"Unmasked"}`, `"hostUsers":true`, "procMount"},
	{"seccomp", `"securityContext":{"seccompProfile":{"type":"Unconfined"}}`, ``, "seccompProfile"},
	{"seccompfile", `"securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"audit.json"}}`, ``, "seccompProfile"},
	{"printer", ``, `"containers":[{"name":"c","image":"127.0.0.1:631/x"}]`, "provider's own network"},
	{"router", ``, `"containers":[{"name":"c","image":"192.168.1.1/x"}]`, "provider's own network"},
	{"volumeimage", ``, `"volumes":[{"name":"v","image":{"reference":"nas.local/x"}}]`, "provider's own network"},
	{"apparmor", `"securityContext":{"appArmorProfile":{"type":"Unconfined"}}`, ``, "AppArmor"},
	{"selinux", `"securityContext":{"seLinuxOptions":{"type":"spc_t"}}`, ``, "seLinuxOptions"},
	{"windows", `"securityContext":{"windowsOptions":{"hostProcess":true}}`, ``, "hostProcess"},
	{"sysctl", ``, `"securityContext":{"sysctls":[{"name":"kernel.shm_rmid_forced","value":"1"},{"name":"kernel.msgmax","value":"1"}]}`, "sysctl"},
	{"hostport", `"ports":[{"containerPort":80,"hostPort":80}]`, ``, "hostPort"},
	{"probehost", `"livenessProbe":{"httpGet":{"host":"127.0.0.1","port":10250}}`, ``, "host"},
	{"hookhost", `"lifecycle":{"postStart":{"httpGet":{"host":"169.254.169.254","port":80}}}`, ``, "host"},
	{"tcphost", `"readinessProbe":{"tcpSocket":{"host":"192.0.2.1","port":22}}`, ``, "host"},
	{"initprivileged", ``, `"initContainers":[{"name":"i","image":"kith.dev/echo:1","securityContext":{"privileged":true}}]`, "privileged"},
	{"negative", `"resources":{"requests":{"cpu":"-4"}}`, ``, "negative"},
	{"negativelimit", `"resources":{"limits":{"memory":"-1Gi"}}`, ``, "negative"},
	{"hang", `"resources":{"requests":{"cpu":"1e999999999999"}}`, ``, "amount"},
	{"hangdown", `"resources":{"limits":{"memory":"1e-99999999"}}`, ``, "amount"},
	{"hangsize", ``, `"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1e-99999999"}}]`, "amount"},
	{"hangoverhead", ``, `"overhead":{"cpu":"1e-99999999"}`, "amount"},
	{"hangdivisor", `"env":[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"1e-99999999"}}}]`, ``, "amount"},
	{"huge", `"resources":{"requests":{"cpu":"9223372036854775807"}}`, ``, "contract"},
	{"muchcpu", `"resources":{"requests":{"cpu":"301m"}}`, ``, "cpu"},
	{"limitonly", `"resources":{"limits":{"memory":"257Mi"}}`, ``, "memory"},
	{"disk", `"resources":{"requests":{"ephemeral-storage":"100Ti"}}`, ``, "ephemeral-storage"},
	{"gpu", `"resources":{"limits":{"nvidia.com/gpu":"1"}}`, ``, "nvidia.com/gpu"},
	{"hugepages", `"resources":{"limits":{"hugepages-2Mi":"2Mi","cpu":"1m","memory":"1Mi"}}`, ``, "hugepages"},
	{"initcpu", ``, `"initContainers":[{"name":"i","image":"kith.dev/echo:1","resources":{"requests":{"cpu":"2"}}}]`, "cpu"},
	{"sidecar", ``, `"initContainers":[{"name":"i","image":"kith.dev/echo:1","restartPolicy":"Always","resources":{"requests":{"cpu":"301m"}}}]`, "cpu"},
	{"podlevel", ``, `"resources":{"requests":{"memory":"300Mi"}}`, "memory"},
	{"podlevelsmall", `"resources":{"requests":{"memory":"300Mi"}}`, `"resources":{"requests":{"memory":"8Mi"}}`, "memory"},
	{"malformed", ``, `"containers":{"a":"b"}`, "template"},
	{"empty", ``, `"containers":[]`, ""},
}

func (d dangerous) spec() string {
	container := `{"name":"c","image":"kith.dev/echo:1","imagePullPolicy":"IfNotPresent"`
	if d.container != "" {
		container += "," + d.container
	}
	spec := `{"containers":[` + container + `}]`
	if d.pod != "" {
		spec += "," + d.pod // of two of one name the last counts
	}
	return spec + "}"
}

// powerless asks for every dangerous pod.
func (h *hostile) powerless(t *testing.T) {
	atTheDoor := map[string]bool{} // what can be told from the text alone
	for _, d := range dangers {
		a := h.offload(h.lair, d.name, d.spec())
		atTheDoor[d.name] = a.code == 403 && strings.Contains(a.status.Message, d.word)
		if a.code != 201 && !atTheDoor[d.name] {
			t.Errorf("%s: %d %.300s", d.name, a.code, a.text)
		}
	}
	for _, d := range dangers {
		if atTheDoor[d.name] {
			continue
		}
		eventually(t, 20*time.Second, d.name+" is refused", func() string {
			s := h.verdict(h.lair, d.name)
			if s.Phase != v1alpha1.OffloadedPodRefused || s.Reason == "" || !strings.Contains(s.Message, d.word) {
				return fmt.Sprintf("%s %s: %s", s.Phase, s.Reason, s.Message)
			}
			return ""
		})
	}
	if g := h.guestsNow(); len(g) > 0 {
		t.Errorf("%d pods were made, the first is %s", len(g), g[0].Name)
	}
	for _, d := range dangers {
		h.ask("DELETE", h.offloadedPath(h.lair, d.name), "")
	}
	// What a pod says of where and as whom it runs is not listened to, and a pod that is well-behaved but for that runs.
	meek := strings.TrimSuffix(plainSpec, "}") + `,"nodeName":"alice","serviceAccountName":"nobody","runtimeClassName":"none","priorityClassName":"system-node-critical","schedulerName":"none","tolerations":[{"operator":"Exists"}]}`
	if a := h.offload(h.lair, "meek", meek); a.code != 201 {
		t.Fatalf("%d %s", a.code, a.text)
	}
	eventually(t, 60*time.Second, "meek runs", func() string {
		for _, g := range h.guestsNow() {
			if s := g.Spec; g.Name == "meek" && podReady(&g) {
				if s.Priority == nil || *s.Priority != -1000 || s.ServiceAccountName != "default" || s.NodeName != "bob" || *s.AutomountServiceAccountToken {
					t.Errorf("it runs as %+v", s)
				}
				return ""
			}
		}
		return h.verdict(h.lair, "meek").Message
	})
	// In place nothing of that can be brought in either.
	change := func(seen, annotation string) {
		template := fmt.Sprintf(`{"metadata":{"labels":{"kith.dev/consumer":"bob","kith.dev/managed-by":"me","seen":%q},"annotations":{%s}},"spec":%s}`, seen, annotation, strings.TrimSuffix(meek, "}")+`,"hostNetwork":true}`)
		if a := h.rewrite(h.lair, "meek", template); a.code != 200 {
			t.Errorf("change %s: %d %s", annotation, a.code, a.text)
		}
	}
	meekly := func() (seen string) {
		for _, g := range h.guestsNow() {
			if g.Spec.HostNetwork || g.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || g.Labels[v1alpha1.LabelConsumer] == "bob" || g.Annotations["io.containerd.x"] != "" {
				t.Errorf("%s became %+v", g.Name, g.ObjectMeta)
			}
			seen = g.Labels["seen"]
		}
		return seen
	}
	change("yes", `"io.containerd.x":"y"`)
	eventually(t, 20*time.Second, "the change has arrived", func() string {
		if meekly() != "yes" {
			return "not yet"
		}
		return ""
	})
	change("again", `"container.apparmor.security.beta.kubernetes.io/c":"unconfined"`) // the API server may refuse all of it
	time.Sleep(2 * time.Second)
	meekly()
	h.ask("DELETE", h.offloadedPath(h.lair, "meek"), "")
}

// snoops: a pod of alice's own that may not run there tells so at home.
func (h *hostile) snoops(t *testing.T) {
	kubectl(t, h.alice, "create", "namespace", "shop")
	kith(t, h.alice, "offload", "shop")
	apply(t, h.alice, strings.Replace(solo("snoop", "kith-bob"), "spec:", "spec:\n  hostPID: true", 1))
	eventually(t, 30*time.Second, "alice's pod has an event", func() string {
		out := kubectl(t, h.alice, "-n", "shop", "get", "events", "--field-selector", "involvedObject.name=snoop", "-o", "jsonpath={range .items[*]}{.type} {.reason} {.message}{\"\\n\"}{end}")
		if !strings.Contains(out, "hostPID is not allowed") {
			return instead(out)
		}
		return ""
	})
	kubectl(t, h.alice, "delete", "namespace", "shop")
}

// services tries services and endpoints that lead where the consumer must not.
func (h *hostile) services(t *testing.T) {
	at, err := h.bob.Address()
	if err != nil {
		t.Fatal(err)
	}
	labels := `"labels":{"kith.dev/managed-by":"kith","endpointslice.kubernetes.io/managed-by":"kith.dev","kubernetes.io/service-name":"svc"}`
	slice := func(name, address string) string {
		return fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,%s},"addressType":"IPv4","endpoints":[{"addresses":[%q]}],"ports":[{"port":80}]}`, name, labels, address)
	}
	slices := "/kube/apis/discovery.k8s.io/v1/namespaces/" + h.lair + "/endpointslices"
	// Addresses of bob's pods and of his node are not among them: to alice's guests they are her own.
	laptop := at.String()
	guests := netip.MustParsePrefix(kubectl(t, h.bob, "get", "peer", "alice", "-o", "jsonpath={.status.network.guestsHere}"))
	bad := []string{laptop, guests.Addr().Prev().String(), netplan.Last(guests).Next().String(), "10.41.255.255", "10.44.0.0", "10.43.0.1", "10.43.0.10", "127.0.0.1", "127.1.2.3", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255", "192.0.2.1", "1.1.1.1"}
	for i, address := range bad {
		h.refused("a slice with "+address, h.ask("POST", slices, slice(fmt.Sprintf("bad%d", i), address)))
	}
	for kind, address := range map[string]string{"IPv6": "::1", "FQDN": "localhost"} {
		text := strings.Replace(slice("six", address), `"IPv4"`, `"`+kind+`"`, 1)
		h.refused("a slice of "+kind, h.ask("POST", slices, text))
	}
	const own = "10.42.0.77"
	if a := h.ask("POST", slices, slice("good", own)); a.code != 201 {
		t.Fatalf("a slice with an address of her own: %d %s", a.code, a.text)
	}
	var made map[string]any
	if err := json.Unmarshal([]byte(h.ask("GET", slices+"/good", "").text), &made); err != nil {
		t.Fatal(err)
	}
	h.refused("a slice changed by PUT", h.ask("PUT", slices+"/good", slice("good", laptop)))
	for kind, patch := range map[string]string{
		"application/merge-patch+json":           `{"endpoints":[{"addresses":["` + laptop + `"]}]}`,
		"application/json-patch+json":            `[{"op":"replace","path":"/endpoints/0/addresses/0","value":"` + laptop + `"}]`,
		"application/strategic-merge-patch+json": `{"endpoints":[{"addresses":["` + laptop + `"]}]}`,
	} {
		h.refused("a slice changed by "+kind, h.ask("PATCH", slices+"/good", patch, "Content-Type: "+kind))
	}
	h.refused("a slice applied", h.ask("PATCH", slices+"/good?fieldManager=kith&force=true", slice("good", laptop), "Content-Type: application/apply-patch+yaml"))
	h.refused("two addresses, one of her own", h.ask("PATCH", slices+"/good", `{"endpoints":[{"addresses":["`+own+`"]},{"addresses":["127.0.0.1"]}]}`, "Content-Type: application/merge-patch+json"))

	service := func(name, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"labels":{"kith.dev/managed-by":"kith"}},"spec":{%s}}`, name, spec)
	}
	const ports = `"ports":[{"port":80}]`
	for name, spec := range map[string]string{
		"nodeport": `"type":"NodePort",` + ports, "loadbalancer": `"type":"LoadBalancer",` + ports, "external": `"externalIPs":["` + at.String() + `"],` + ports,
		"localhost": `"type":"ExternalName","externalName":"localhost"`, "api": `"type":"ExternalName","externalName":"kubernetes.default.svc"`,
		"den": `"type":"ExternalName","externalName":"mine.den.svc.cluster.local"`, "dot": `"type":"ExternalName","externalName":"MINE.den.SVC.cluster.local."`,
		"router": `"type":"ExternalName","externalName":"router.local"`,
	} {
		h.refused("a service "+name, h.ask("POST", h.in("services"), service(name, spec)))
	}
	if a := h.ask("POST", h.in("services"), service("svc", ports)); a.code != 201 {
		t.Fatalf("a plain service: %d %s", a.code, a.text)
	}
	for _, patch := range []string{`{"spec":{"type":"NodePort"}}`, `{"spec":{"externalIPs":["1.2.3.4"]}}`, `{"spec":{"type":"ExternalName","externalName":"x.den.svc"}}`, `{"metadata":{"finalizers":["x/y"]}}`, `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":"x"}}}`} {
		h.refused("a service changed to "+patch, h.ask("PATCH", h.in("services/svc"), patch, "Content-Type: application/merge-patch+json"))
	}
	for kind, text := range map[string]string{
		"a token":  `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"t","labels":{"kith.dev/managed-by":"kith"},"annotations":{"kubernetes.io/service-account.name":"default"}},"type":"kubernetes.io/service-account-token"}`,
		"owned":    `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"o","labels":{"kith.dev/managed-by":"kith"},"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"mine","uid":"1"}]}}`,
		"no label": `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"n"}}`,
	} {
		h.refused("a secret: "+kind, h.ask("POST", h.in("secrets"), text))
	}
	h.ask("DELETE", slices+"/good", "")
	h.ask("DELETE", h.in("services/svc"), "")
}

// contractHolds has bob's pods summed all the time while everything is tried that could make them more.
func (h *hostile) contractHolds(t *testing.T) {
	limit := corev1.ResourceList{"cpu": resource.MustParse("300m"), "memory": resource.MustParse("256Mi"), "pods": resource.MustParse("6")}
	ctx, stop := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	most, seen := corev1.ResourceList{}, 0
	watch.Go(func() {
		for ctx.Err() == nil {
			list, err := h.guests()
			if err != nil {
				continue
			}
			seen++
			for name, q := range sumOf(list) {
				if q.Cmp(most[name]) > 0 {
					most[name] = q
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	namespaces := []string{h.lair, h.namespace("lair2"), h.namespace("lair3")}
	spec := func(cpu, memory string) string {
		return `{"terminationGracePeriodSeconds":100000,"containers":[{"name":"c","image":"kith.dev/echo:1","imagePullPolicy":"IfNotPresent","resources":{"requests":{"cpu":"` + cpu + `","memory":"` + memory + `"}}}]}`
	}
	merge, seed := "Content-Type: application/merge-patch+json", uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	amounts := []string{"50m", "100m", "150m", "300m", "1m", "0"}
	memories := []string{"8Mi", "64Mi", "128Mi", "256Mi", "0"}
	var crowd sync.WaitGroup
	for worker := range 8 {
		crowd.Go(func() {
			dice := rand.New(rand.NewPCG(seed, uint64(worker)))
			for range 40 {
				namespace, name := namespaces[dice.IntN(3)], fmt.Sprintf("p%d", dice.IntN(12))
				path := h.offloadedPath(namespace, name)
				switch dice.IntN(8) {
				case 0, 1, 2:
					h.offload(namespace, name, spec(amounts[dice.IntN(6)], memories[dice.IntN(5)]))
				case 3: // more, after it was made
					h.rewrite(namespace, name, `{"spec":`+spec("2", "4Gi")+`}`)
				case 4: // deleted, and made again at once
					h.ask("DELETE", path, "")
					h.offload(namespace, name, spec("100m", "64Mi"))
				case 5: // gone without a trace, its pod left behind with a day of grace
					h.ask("PATCH", path, `{"metadata":{"finalizers":null}}`, merge)
					h.ask("DELETE", path, "")
				case 6: // its pod orphaned
					h.ask("DELETE", path+"?propagationPolicy=Orphan", "")
				case 7: // killed for good, to be made again
					h.ask("PATCH", path, `{"metadata":{"annotations":{"kith.dev/grace-seconds":"0"}}}`, merge)
					h.ask("DELETE", path, "")
				}
			}
		})
	}
	crowd.Wait()
	time.Sleep(3 * time.Second) // what was asked for last is made, if it is
	for _, namespace := range namespaces {
		for i := range 12 {
			h.ask("PATCH", h.offloadedPath(namespace, fmt.Sprintf("p%d", i)), `{"metadata":{"annotations":{"kith.dev/grace-seconds":"0"}}}`, merge)
			h.ask("DELETE", h.offloadedPath(namespace, fmt.Sprintf("p%d", i)), "")
		}
	}
	eventually(t, time.Minute, "nothing is left behind", func() string {
		if g := h.guestsNow(); len(g) > 0 {
			return fmt.Sprintf("%d pods, the first is %s/%s, owned by %v, deleted %v with %v s", len(g), g[0].Namespace, g[0].Name, g[0].OwnerReferences, g[0].DeletionTimestamp, g[0].DeletionGracePeriodSeconds)
		}
		return ""
	})
	stop()
	watch.Wait()
	for name, q := range most {
		if l, ok := limit[name]; !ok || q.Cmp(l) > 0 {
			t.Errorf("%s: %s was in use, %s is granted", name, q.String(), l.String())
		}
	}
	t.Logf("looked %d times; the most in use: cpu %s, memory %s, pods %s", seen, most.Cpu(), most.Memory(), most.Name("pods", resource.DecimalSI))
	if most.Cpu().Cmp(resource.MustParse("150m")) < 0 {
		t.Error("hardly anything ran, so nothing was tried")
	}
	// And the book is at zero: all of the contract can be had again.
	if a := h.offload(h.lair, "all", spec("300m", "256Mi")); a.code != 201 {
		t.Fatalf("%d %s", a.code, a.text)
	}
	eventually(t, 30*time.Second, "all of it can be had again", func() string {
		if s := h.verdict(h.lair, "all"); s.Phase != v1alpha1.OffloadedPodAccepted {
			return string(s.Phase) + " " + s.Message
		}
		return ""
	})
}

// sumOf is what pods that have not ended hold.
func sumOf(list []corev1.Pod) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for i := range list {
		if p := &list[i]; p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
			requests["pods"] = resource.MustParse("1")
			for name, q := range requests {
				s := sum[name]
				s.Add(q)
				sum[name] = s
			}
		}
	}
	return sum
}

// shutOut keeps open what can be kept open while bob ends the contract.
func (h *hostile) shutOut(t *testing.T) {
	eventually(t, 60*time.Second, "a guest runs", func() string {
		for _, g := range h.guestsNow() {
			if g.Name == "all" && podReady(&g) {
				return ""
			}
		}
		return "not yet"
	})
	ends := make(chan string, 10)
	open := 0
	follow := func(what string, body io.ReadCloser) {
		open++
		go func() {
			io.Copy(io.Discard, body)
			ends <- what
		}()
	}
	for what, path := range map[string]string{
		"watch of pods": h.in("pods?watch=1"), "watch of secrets": h.in("secrets?watch=true"), "watch of OffloadedPods": h.offloadedPath(h.lair, "") + "?watch=1&allowWatchBookmarks=true",
		"log": h.in("pods/all/log?follow=true"),
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://bob"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: h.web.Transport}).Do(r)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %v %v", what, resp, err)
		}
		defer resp.Body.Close()
		follow(what, resp.Body)
	}
	for what, path := range map[string]string{
		"exec by websocket":         h.in("pods/all/exec?command=/app&command=sleep&command=1000&stdin=1&stdout=1"),
		"port-forward by websocket": h.in("pods/all/portforward?ports=8080"),
	} {
		conn, err := h.dial(t.Context(), "http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		protocol := "v5.channel.k8s.io"
		if strings.Contains(what, "port") {
			protocol = "v4.channel.k8s.io"
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: %s\r\n\r\n", path, protocol)
		reader := bufio.NewReader(conn)
		resp, err := http.ReadResponse(reader, nil)
		if err != nil || resp.StatusCode != 101 {
			t.Fatalf("%s: %+v %v", what, resp, err)
		}
		follow(what, io.NopCloser(reader))
	}
	twins := func() string {
		return strings.TrimSpace(kubectl(t, h.bob, "get", "namespaces", "-l", v1alpha1.LabelConsumer, "-o", "name"))
	}
	if had := twins(); len(strings.Fields(had)) < 3 {
		t.Fatalf("there are not three twin namespaces, but %q", had)
	}
	time.Sleep(time.Second)
	if len(ends) > 0 {
		t.Fatalf("%s ended by itself", <-ends)
	}
	began := time.Now()
	ended := make(chan error, 1)
	go func() {
		_, err := h.bob.Kith(t.Context(), "unpeer", "alice", "--yes")
		ended <- err
	}()
	for range open {
		select {
		case what := <-ends:
			t.Logf("%s: cut after %s", what, time.Since(began).Round(10*time.Millisecond))
		case <-time.After(patience):
			t.Fatalf("something is still open %s after bob ended the contract", patience)
		}
	}
	h.refused("after the end", h.ask("GET", h.in("pods"), ""))
	h.refused("after the end, discovery", h.ask("GET", "/kube/version", ""))
	if a := h.ask("PUT", "/kith/v2/namespaces/lair9?contract="+h.contract, ""); a.code < 400 {
		t.Errorf("a namespace after the end: %d %s", a.code, a.text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left := twins(); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
