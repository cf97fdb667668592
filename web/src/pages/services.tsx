/** Services: environments that run on, with their replicas. */

import type { JSX } from "preact";
import { ask } from "../api";
import { useLive } from "../live";
import { link } from "../router";
import { Empty, isMissing, Problem, Status, useAsked, useTitle } from "../ui";
import { day, shortId } from "../words";

interface Service {
  id: string;
  env: { name: string; version: string } | null;
  status: string;
  created_at: string;
  replicas: number;
  available_replicas: number;
  service_url: string | null;
  owner: string | null;
  instances: string[];
  reason: string | null;
}

export function ServicesPage(): JSX.Element {
  useTitle("Services");
  const live = useLive();
  // Asked again with each event of the stream that tells what is used.
  const { value, error } = useAsked((signal) => ask<Service[]>("GET", "/env-service/*/list", { signal }), [live.ticks]);
  return (
    <>
      <h1>Services</h1>
      {error !== undefined && !isMissing(error) && <Problem error={error} />}
      {value && !value.length && (
        <Empty title="There are no services">
          <p>
            Make one with <code>aenv service create my-env</code>.
          </p>
        </Empty>
      )}
      <ul class="offers">
        {(value ?? []).map((service) => (
          <li key={service.id}>
            <h2>
              {service.id} <Status status={service.status} />
            </h2>
            <p>
              {service.env && <a href={link("environments", service.env.name, service.env.version)}>{`${service.env.name}@${service.env.version}`}</a>},{" "}
              {service.available_replicas} of {service.replicas} replicas available{service.owner && `, of ${service.owner}`}, since{" "}
              {day(service.created_at)}
            </p>
            {service.reason && <p class="problem">{service.reason}</p>}
            {service.service_url && (
              <p>
                <code class="wrap">{service.service_url}</code>
              </p>
            )}
            {service.instances.length > 0 && <p class="quiet">Replicas: {service.instances.map(shortId).join(", ")}</p>}
          </li>
        ))}
      </ul>
    </>
  );
}
